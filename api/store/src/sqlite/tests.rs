mod upkeep;

use std::sync::Arc;

use super::*;
use crate::Expect;
use crate::battery::{take, write};

async fn open(dir: &tempfile::TempDir) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(SqliteConfig { history_len: 100, ..SqliteConfig::new(dir.path().join("state.db")) }).await
}

/// A fresh store whose directory stays after the test.
async fn fresh() -> Arc<dyn Store> {
    let dir = tempfile::tempdir().expect("a directory");
    Arc::new(SqliteStore::open(SqliteConfig::new(dir.keep().join("state.db"))).await.expect("opens"))
}

crate::battery!(fresh());

#[tokio::test]
async fn what_was_answered_is_there_after_reopening() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(&dir).await.expect("opens");
    for n in 0..10 {
        store.write(write(&format!("k{n}"), Some("v"), Expect::Absent)).await.expect("writes");
    }
    store.write(write("k0", None, Expect::At(1))).await.expect("deletes");
    store.close().await;
    drop(store);
    let store = open(&dir).await.expect("opens again");
    let snapshot = store.snapshot().await.expect("snapshot");
    assert_eq!((snapshot.revision, snapshot.entries.len()), (11, 9));
    let mut events = store.watch(9).await.expect("history survives");
    assert_eq!(take(&mut events, 2).await.iter().map(|e| e.revision).collect::<Vec<_>>(), [10, 11]);
    assert_eq!(store.write(write("k1", Some("w"), Expect::At(2))).await.expect("conditions survive"), 12);
}

#[tokio::test]
async fn a_second_process_is_rejected_with_the_owners_pid() {
    let dir = tempfile::tempdir().expect("a directory");
    let _first = open(&dir).await.expect("opens");
    match open(&dir).await.map(drop) {
        Err(StoreError::InUse { pid, .. }) => assert_eq!(pid, std::process::id().to_string()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_database_from_a_newer_version_is_rejected() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(&dir).await.expect("opens");
    store.close().await;
    drop(store);
    let pool = SqlitePool::connect(&format!("sqlite://{}", dir.path().join("state.db").display())).await.expect("connects");
    sqlx::query("PRAGMA user_version = 99").execute(&pool).await.expect("sets");
    pool.close().await;
    assert!(matches!(open(&dir).await.map(drop), Err(StoreError::Newer { found: 99, known: 1, .. })));
}

#[tokio::test]
async fn history_is_compacted_automatically() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(&dir).await.expect("opens");
    let mut at = store.write(write("lease", Some("0"), Expect::Absent)).await.expect("writes");
    for n in 0..1_000 {
        at = store.write(write("lease", Some(&n.to_string()), Expect::At(at))).await.expect("writes");
    }
    let rows = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM log").fetch_one(&store.shared.readers).await.expect("counts");
    assert!(rows <= 201, "{rows} rows for one key");
    assert_eq!(store.snapshot().await.expect("snapshot").entries.len(), 1);
}

#[tokio::test]
async fn only_the_owner_may_read_the_database() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(&dir).await.expect("opens");
    store.write(write("secret", Some("s"), Expect::Absent)).await.expect("writes");
    for entry in std::fs::read_dir(dir.path()).expect("lists") {
        let entry = entry.expect("an entry");
        assert_eq!(entry.metadata().expect("metadata").permissions().mode() & 0o077, 0, "{:?}", entry.path());
    }
}

/// If the disk is full, SQLite rolls back by itself (here a trigger does this), or a statement fails and the store must
/// roll back. After either failure, and after both, all acknowledged writes must be on disk.
#[tokio::test]
async fn a_compaction_that_fails_takes_no_later_write_with_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(&dir).await.expect("opens");
    let mut at = store.write(write("k", Some("0"), Expect::Absent)).await.expect("writes");
    let one = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1);
    let other = one.connect(&format!("sqlite://{}", dir.path().join("state.db").display())).await.expect("connects");
    for failure in ["ROLLBACK", "ABORT", "ROLLBACK", "FAIL"] {
        let trigger = format!("CREATE TRIGGER full BEFORE DELETE ON log BEGIN SELECT RAISE({failure}, 'full'); END");
        sqlx::query(sqlx::AssertSqlSafe(trigger)).execute(&other).await.expect("creates");
        at = store.write(write("k", Some(failure), Expect::At(at))).await.expect("writes");
        assert!(store.compact(at).await.is_err());
        assert_eq!(store.compacted().await.expect("known"), 0);
        at = store.write(write("k", Some("after"), Expect::At(at))).await.expect("writes");
        let seen = sqlx::query_scalar::<_, i64>("SELECT max(revision) FROM log").fetch_one(&other).await.expect("reads");
        assert_eq!(unsigned(seen), at, "the write after a {failure} is not committed");
        sqlx::query("DROP TRIGGER full").execute(&other).await.expect("drops");
    }
    store.compact(at).await.expect("compacts when it can");
    assert_eq!(store.compacted().await.expect("known"), at);
}

/// A read of history during its compaction ends with "compacted", never with a gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn history_read_during_a_compaction_has_no_gap() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = SqliteConfig { history_len: 1_000_000, history_bytes_min: u64::MAX, ..SqliteConfig::new(dir.path().join("state.db")) };
    let store = Arc::new(SqliteStore::open(config).await.expect("opens"));
    let (keys, rounds, page) = (64, 60, "v".repeat(4_000));
    // Each key is replaced many times, so that compaction frees rows in all pages, and also whole pages.
    let mut expected = vec![Expect::Absent; keys];
    for _ in 0..rounds {
        let writes = expected.iter().enumerate().map(|(key, expect)| store.write(write(&format!("k{key}"), Some(&page), *expect)));
        // The writes may be committed in any order.
        expected = futures::future::join_all(writes).await.into_iter().map(|written| Expect::At(written.expect("writes"))).collect();
    }
    let compacting = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            for upto in (64..1_500).step_by(32) {
                store.compact(upto).await.expect("compacts");
            }
        }
    });
    let reading = [1, 2].map(|_| tokio::spawn(read_until_compacted(Arc::clone(&store), 1_400)));
    for reader in reading {
        reader.await.expect("no gap");
    }
    compacting.await.expect("compacted");
}

/// Reads the history from the oldest revision, again and again.
async fn read_until_compacted(store: Arc<SqliteStore>, upto: Revision) {
    loop {
        let after = store.compacted().await.expect("known");
        if after >= upto {
            return;
        }
        let Ok(mut events) = store.watch(after).await else { continue };
        match events.next().await.expect("a watch does not end") {
            Ok(batch) => {
                let revisions: Vec<_> = batch.events.iter().map(|event| event.revision).collect();
                assert_eq!(revisions, (after + 1..after + 1 + batch.events.len() as u64).collect::<Vec<_>>());
            }
            Err(error) => assert!(matches!(error, StoreError::Compacted { .. }), "{error:?}"),
        }
    }
}
