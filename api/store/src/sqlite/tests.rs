mod upkeep;

use std::sync::Arc;

use super::*;
use crate::Expect;
use crate::battery::{take, write};

async fn open(dir: &tempfile::TempDir) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(SqliteConfig { path: dir.path().join("state.db"), history_len: 100 }).await
}

/// A fresh store whose directory lives as long as the test's process.
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
async fn a_second_process_is_kept_out_and_told_who_is_in() {
    let dir = tempfile::tempdir().expect("a directory");
    let _first = open(&dir).await.expect("opens");
    match open(&dir).await.map(drop) {
        Err(StoreError::InUse { pid, .. }) => assert_eq!(pid, std::process::id().to_string()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_database_from_a_newer_version_is_refused() {
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
async fn history_is_kept_short_by_itself() {
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
