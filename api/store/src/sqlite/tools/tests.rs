use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use super::*;
use crate::battery::{take, write};
use crate::{Expect, SqliteConfig, SqliteStore, Store};

/// A clock that was never set: it adds no revisions.
const EPOCH: SystemTime = SystemTime::UNIX_EPOCH;

struct TestDir {
    dir: tempfile::TempDir,
}

impl TestDir {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory") }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn open(&self) -> SqliteStore {
        SqliteStore::open(SqliteConfig::new(self.at("state.db"))).await.expect("opens")
    }
}

async fn values(store: &SqliteStore) -> Vec<(String, String, Revision)> {
    let entries = store.snapshot().await.expect("snapshot").entries;
    entries.into_iter().map(|e| (e.key.to_string(), String::from_utf8_lossy(&e.value).into_owned(), e.revision)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_writes_is_one_moment_of_the_log() {
    let dir = TestDir::new();
    let store = Arc::new(dir.open().await);
    let (left, right) = ("left", "right");
    let mut at = [0; 2];
    for (n, key) in [left, right].into_iter().enumerate() {
        at[n] = store.write(write(key, Some("0"), Expect::Absent)).await.expect("writes");
    }
    // Writes the left key first: the right one is never ahead of it, and never more than one behind.
    let writer = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            for n in 1..=2_000 {
                for (at, key) in at.iter_mut().zip([left, right]) {
                    *at = store.write(write(key, Some(&n.to_string()), Expect::At(*at))).await.expect("writes");
                }
            }
        }
    });
    let mut revisions = Vec::new();
    while !writer.is_finished() {
        let to = dir.at(&format!("backup-{}", revisions.len()));
        revisions.push(backup(&dir.at("state.db"), &to).await.expect("backs up").revision);
    }
    writer.await.expect("no panic");
    assert!(revisions.is_sorted() && revisions.len() > 1, "{revisions:?}");
    for (n, revision) in revisions.into_iter().enumerate() {
        let copy = SqliteStore::open(SqliteConfig::new(dir.at(&format!("backup-{n}")))).await.expect("opens");
        let values = values(&copy).await;
        let number = |n: usize| values[n].1.parse::<i64>().expect("a number");
        assert!((0..=1).contains(&(number(0) - number(1))), "{values:?}");
        assert_eq!(copy.head().await.expect("head"), revision);
    }
}

#[tokio::test]
async fn a_backup_is_private_and_replaces_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TestDir::new();
    let store = dir.open().await;
    store.write(write("secret", Some("s"), Expect::Absent)).await.expect("writes");
    let to = dir.at("backup");
    let made = backup(&dir.at("state.db"), &to).await.expect("backs up");
    assert_eq!((made.revision, made.entries), (1, 1));
    assert_eq!(std::fs::metadata(&to).expect("metadata").permissions().mode() & 0o077, 0);
    let again = backup(&dir.at("state.db"), &to).await.expect_err("it exists");
    assert!(again.to_string().ends_with("exists already; a backup does not replace a file"), "{again}");
    let none = backup(&dir.at("other.db"), &dir.at("x")).await.expect_err("nothing to copy");
    assert!(none.to_string().ends_with("other.db does not exist"), "{none}");
    let left: Vec<_> = std::fs::read_dir(dir.dir.path()).expect("lists").map(|entry| entry.expect("an entry").file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("partial")), "{left:?}");
}

#[tokio::test]
async fn after_a_restore_old_revisions_are_too_old_and_new_ones_are_beyond_all_old_ones() {
    let dir = TestDir::new();
    let (database, copy) = (dir.at("state.db"), dir.at("backup"));
    let store = dir.open().await;
    let unchanged = store.write(write("kept", Some("1"), Expect::Absent)).await.expect("writes");
    let changed = store.write(write("changed", Some("1"), Expect::Absent)).await.expect("writes");
    let deleted = store.write(write("deleted", Some("1"), Expect::Absent)).await.expect("writes");
    backup(&database, &copy).await.expect("backs up");
    let late = store.write(write("changed", Some("2"), Expect::At(changed))).await.expect("writes");
    store.write(write("deleted", None, Expect::At(deleted))).await.expect("deletes");
    let last = store.write(write("new", Some("1"), Expect::Absent)).await.expect("writes");
    assert!(matches!(restore(&copy, &database, EPOCH).await, Err(StoreError::InUse { .. })));
    store.close().await;
    drop(store);

    let restored = restore(&copy, &database, EPOCH).await.expect("restores");
    assert_eq!(restored.entries, 3);
    let store = dir.open().await;
    let expected = [("changed", changed), ("deleted", deleted), ("kept", unchanged)].map(|(key, at)| (key.to_owned(), "1".to_owned(), at));
    assert_eq!(values(&store).await, expected);
    assert!(store.head().await.expect("head") > last);
    for old in [0, unchanged, deleted, late, last] {
        assert!(matches!(store.watch(old).await.map(drop), Err(StoreError::Compacted { oldest }) if oldest > last), "{old}");
    }
    // A writer that has seen the lost change may not overwrite the older state.
    let stale = store.write(write("changed", Some("3"), Expect::At(late))).await;
    assert!(matches!(stale, Err(StoreError::Conflict { current: Some(current) }) if current == changed), "{stale:?}");
    let mut events = store.watch(restored.revision).await.expect("watch");
    let new = store.write(write("changed", Some("3"), Expect::At(changed))).await.expect("writes");
    assert_eq!(new, restored.revision + 1);
    let seen = take(&mut events, 1).await;
    assert_eq!((seen[0].revision, seen[0].previous), (new, Some(changed)));
    store.close().await;
    assert_eq!(check(&database).await.expect("checks").problems, Vec::<String>::new());
    // The replaced database still exists.
    let replaced = check(&dir.at("state.db.replaced")).await.expect("checks");
    assert_eq!((replaced.revision, replaced.entries, replaced.problems), (last, 3, Vec::new()));
}

#[tokio::test]
async fn a_restore_needs_no_present_database_and_keeps_one_that_it_cannot_read() {
    let dir = TestDir::new();
    let store = dir.open().await;
    store.write(write("a", Some("1"), Expect::Absent)).await.expect("writes");
    backup(&dir.at("state.db"), &dir.at("backup")).await.expect("backs up");
    store.close().await;
    drop(store);
    let elsewhere = TestDir::new();
    let (database, log) = (elsewhere.at("state.db"), elsewhere.at("state.db-wal"));
    // Acknowledged writes may be only in the log, so neither the log nor its database is changed.
    for present in [&[(&database, "this was a database"), (&log, "and so was this")][..], &[(&log, "a log whose database is not there")]] {
        for (path, content) in present {
            std::fs::write(path, content).expect("writes");
        }
        let refused = restore(&dir.at("backup"), &database, EPOCH).await.expect_err("it is kept").to_string();
        assert!(refused.contains("state.db-wal") && refused.contains("restore again"), "{refused}");
        for (path, content) in present {
            assert_eq!(std::fs::read_to_string(path).expect("reads"), *content);
            std::fs::remove_file(path).expect("moved away");
        }
        assert!(!elsewhere.at("state.db.replaced").exists());
    }
    restore(&dir.at("backup"), &database, EPOCH).await.expect("restores");
    assert_eq!(values(&elsewhere.open().await).await, [("a".to_owned(), "1".to_owned(), 1)]);
    assert!(!elsewhere.at("state.db.replaced").exists());
}

/// SQLite deletes the log of a file that it does not recognize as a database.
#[tokio::test]
async fn nothing_deletes_a_log_whose_database_is_lost() {
    let dir = TestDir::new();
    let (database, log) = (dir.at("state.db"), dir.at("state.db-wal"));
    std::fs::write(&log, "answered writes").expect("writes");
    for present in [None, Some(""), Some("SQLite"), Some("this was a database")] {
        if let Some(content) = present {
            std::fs::write(&database, content).expect("writes");
            for refused in [check(&database).await.map(drop), backup(&database, &dir.at("copy")).await.map(drop)] {
                assert!(matches!(refused, Err(StoreError::File { .. })), "{refused:?}");
            }
        }
        let refused = SqliteStore::open(SqliteConfig::new(database.clone())).await.map(drop).expect_err("it is kept").to_string();
        assert!(refused.contains("state.db-wal may hold answered writes"), "{refused}");
        assert_eq!(std::fs::read_to_string(&log).expect("reads"), "answered writes", "{present:?}");
        assert_eq!(std::fs::read_to_string(&database).ok().as_deref(), present);
    }
}

/// The same backup is restored several times, over the result of the last restore and also after its loss. No log
/// reuses a revision of another one.
#[tokio::test]
async fn a_later_restore_goes_on_beyond_the_earlier_ones() {
    let dir = TestDir::new();
    let (database, copy) = (dir.at("state.db"), dir.at("backup"));
    let store = dir.open().await;
    store.write(write("a", Some("1"), Expect::Absent)).await.expect("writes");
    backup(&database, &copy).await.expect("backs up");
    store.close().await;
    drop(store);
    let mut last = 0;
    for (seconds, is_lost) in [(1_000_000, false), (1_000_001, true), (1_000_002, true)] {
        restore(&copy, &database, EPOCH + std::time::Duration::from_secs(seconds)).await.expect("restores");
        let store = dir.open().await;
        let next = store.write(write("b", Some("1"), Expect::Absent)).await.expect("writes");
        assert!(next > last + 50_000, "{next} after {last}");
        assert!(matches!(store.watch(last).await.map(drop), Err(StoreError::Compacted { .. })));
        last = next;
        store.close().await;
        drop(store);
        if is_lost {
            std::fs::remove_file(&database).expect("the disk is lost");
        }
    }
}

#[tokio::test]
async fn what_is_no_whole_backup_is_not_restored() {
    let dir = TestDir::new();
    let store = dir.open().await;
    for n in 0..200 {
        store.write(write(&format!("k{n}"), Some(&"v".repeat(500)), Expect::Absent)).await.expect("writes");
    }
    let copy = dir.at("backup");
    backup(&dir.at("state.db"), &copy).await.expect("backs up");
    store.close().await;
    drop(store);
    let before = std::fs::read(dir.at("state.db")).expect("reads");

    let mut damaged = std::fs::read(&copy).expect("reads");
    let middle = damaged.len() / 2;
    damaged[middle..middle + 4096].fill(0xa5);
    std::fs::write(dir.at("damaged"), &damaged).expect("writes");
    std::fs::write(dir.at("cut"), &damaged[..middle / 4096 * 4096]).expect("writes");
    std::fs::write(dir.at("text"), "not a database, but long enough to be looked at as if it were one".repeat(20)).expect("writes");
    std::fs::write(dir.at("empty"), "").expect("writes");
    for (file, complaint) in [
        ("damaged", "is damaged"),
        ("cut", ""),
        ("text", "is not a database"),
        ("empty", "is not a database of skiff"),
        ("none", "does not exist"),
    ] {
        let error = restore(&dir.at(file), &dir.at("state.db"), EPOCH).await.expect_err(file).to_string();
        assert!(error.contains(complaint) && error.contains(file), "{file}: {error}");
        assert_eq!(std::fs::read(dir.at("state.db")).expect("reads"), before, "{file}");
    }
}

#[tokio::test]
async fn a_check_sees_what_the_log_must_not_hold() {
    let dir = TestDir::new();
    let path = dir.at("state.db");
    let store = dir.open().await;
    let mut at = store.write(write("a", Some("1"), Expect::Absent)).await.expect("writes");
    for n in 0..5 {
        at = store.write(write("a", Some(&n.to_string()), Expect::At(at))).await.expect("writes");
    }
    store.write(write("b", Some("22"), Expect::Absent)).await.expect("writes");
    // The check also works while the server runs.
    let health = check(&path).await.expect("checks");
    assert_eq!((health.revision, health.entries, health.history, health.live_bytes), (7, 2, 5, 5));
    assert_eq!(health.problems, Vec::<String>::new());
    store.close().await;
    drop(store);
    for (damage, complaint) in [
        ("DELETE FROM log WHERE revision = 3", "a: a row of history is missing"),
        ("UPDATE log SET previous = 4 WHERE revision = 7", "b: a row replaces one of another key"),
        ("UPDATE log SET previous = NULL WHERE revision = 5", "a: has more than one current value"),
        ("UPDATE log SET created = 99 WHERE revision = 7", "b: a row replaces a later one"),
    ] {
        let damaged = dir.at("damaged");
        let _none = std::fs::remove_file(&damaged);
        backup(&path, &damaged).await.expect("backs up");
        let mut database = open_existing(&damaged).await.expect("opens");
        sqlx::query(damage).execute(&mut database).await.expect("damages");
        database.close().await.expect("closes");
        let problems = check(&damaged).await.expect("checks").problems;
        assert!(problems.iter().any(|problem| problem == complaint), "{damage}: {problems:?}");
    }
}
