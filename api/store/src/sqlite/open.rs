//! Opens the database: takes the lock that excludes a second process, checks the schema and its version, and reads the
//! index of current keys.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use futures::TryStreamExt;
use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Row};

use super::history::{History, row_bytes};
use super::{Current, Index, SqliteConfig, unsigned, wal};
use crate::{Revision, StoreError};

/// The schema that this version writes. It is stored in `user_version`.
pub(super) const SCHEMA: i64 = 1;
/// Connections that read snapshots and history.
const READERS_MAX: u32 = 2;
/// The maximum of cached prepared statements: one for each power of two up to the size of a batch, and a few more.
const STATEMENTS_MAX: usize = super::writer::BATCH_LEN_MAX.ilog2() as usize + 1 + 16;

/// The size to which SQLite truncates the write-ahead log when the log restarts after a long read.
const WAL_BYTES_MAX: u32 = 4 << 20;

/// The revision of the head. It is stored because compaction may remove a tombstone at the head.
pub(super) const HEAD: &str = "SELECT max(coalesce((SELECT max(revision) FROM log), 0), (SELECT value FROM meta WHERE name = 'compacted'))";

const TABLES: &[&str] = &[
    "CREATE TABLE log (revision INTEGER PRIMARY KEY, key TEXT NOT NULL, value BLOB, previous INTEGER, created INTEGER NOT NULL) STRICT",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    "INSERT INTO meta (name, value) VALUES ('compacted', 0)",
];

pub(super) struct Opened {
    pub writer: SqliteConnection,
    pub readers: SqlitePool,
    pub index: Index,
    pub history: History,
    pub head: Revision,
    pub compacted: Revision,
    pub lock: File,
}

pub(super) async fn open(config: &SqliteConfig) -> Result<Opened, StoreError> {
    let path = config.path.as_path();
    let lock = lock(path)?;
    if wal::would_be_deleted(path).map_err(|source| failed(path, "reading", sqlx::Error::Io(source)))? {
        let log = wal::path(path);
        let why = format!("cannot be read, and {} may hold answered writes; move both away, then restore a backup", log.display());
        return Err(StoreError::File { path: path.display().to_string(), why });
    }
    create_private(path)?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .auto_vacuum(SqliteAutoVacuum::Incremental)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .pragma("journal_size_limit", WAL_BYTES_MAX.to_string())
        .statement_cache_capacity(STATEMENTS_MAX)
        .disable_statement_logging();
    let opening = |source| failed(path, "opening the database", source);
    let mut writer = SqliteConnection::connect_with(&options).await.map_err(opening)?;
    migrate(path, &mut writer).await?;
    let readers = SqlitePoolOptions::new().min_connections(0).max_connections(READERS_MAX).connect_lazy_with(options);
    let reading = |source| failed(path, "reading the database", source);
    let (index, head, compacted) = current(&mut writer).await.map_err(reading)?;
    let superseded = superseded(&mut writer).await.map_err(reading)?;
    let history = History::new(index.values().map(|current| current.bytes).sum(), superseded);
    Ok(Opened { writer, readers, index, history, head, compacted, lock })
}

use sqlx::Connection;

/// Takes the lock beside the database and writes the pid into it. The error message of a second process shows the pid.
pub(super) fn lock(path: &Path) -> Result<File, StoreError> {
    let lock_path = path.with_extension("lock");
    let failing = |doing: &str, source: std::io::Error| StoreError::Backend {
        doing: format!("{doing} {}", lock_path.display()),
        source: Arc::new(source),
    };
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|source| failing("creating the directory of", source))?;
    }
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&lock_path)
        .map_err(|source| failing("opening", source))?;
    match file.try_lock() {
        Ok(()) => {
            file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).map_err(|source| failing("writing", source))?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let read = file.read_to_string(&mut pid);
            let pid = if read.is_ok() && !pid.is_empty() { pid } else { "unknown".to_owned() };
            Err(StoreError::InUse { path: path.display().to_string(), pid })
        }
        Err(TryLockError::Error(source)) => Err(failing("locking", source)),
    }
}

/// Creates the file so that only its owner can read it: it contains Secrets.
pub(super) fn create_private(path: &Path) -> Result<(), StoreError> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map(drop)
        .map_err(|source| StoreError::Backend { doing: format!("creating {}", path.display()), source: Arc::new(source) })
}

async fn migrate(path: &Path, connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let opening = |source| failed(path, "preparing the database", source);
    let found = sqlx::query_scalar::<_, i64>("PRAGMA user_version").fetch_one(&mut *connection).await.map_err(opening)?;
    if found > SCHEMA {
        return Err(StoreError::Newer { path: path.display().to_string(), found, known: SCHEMA });
    }
    if found == SCHEMA {
        return Ok(());
    }
    let mut transaction = connection.begin().await.map_err(opening)?;
    for &statement in TABLES {
        sqlx::query(statement).execute(&mut *transaction).await.map_err(opening)?;
    }
    sqlx::query("PRAGMA user_version = 1").execute(&mut *transaction).await.map_err(opening)?;
    transaction.commit().await.map_err(opening)
}

/// The index of current keys, the head, and the compacted revision.
async fn current(connection: &mut SqliteConnection) -> Result<(Index, Revision, Revision), sqlx::Error> {
    let index: Index = sqlx::query(
        "SELECT key, revision, created, length(value) FROM log \
         WHERE value IS NOT NULL AND revision NOT IN (SELECT previous FROM log WHERE previous IS NOT NULL)",
    )
    .fetch(&mut *connection)
    .and_then(|row| async move {
        let key: Arc<str> = row.try_get::<&str, _>(0)?.into();
        let (revision, created) = (unsigned(row.try_get(1)?), unsigned(row.try_get(2)?));
        let bytes = row_bytes(&key, None) + unsigned(row.try_get(3)?);
        Ok((key, Current { revision, created, bytes }))
    })
    .try_collect()
    .await?;
    let head = sqlx::query_scalar::<_, i64>(HEAD).fetch_one(&mut *connection).await?;
    let compacted = sqlx::query_scalar::<_, i64>("SELECT value FROM meta WHERE name = 'compacted'").fetch_one(&mut *connection).await?;
    Ok((index, unsigned(head), unsigned(compacted)))
}

/// Revisions whose compaction frees bytes, with the number of these bytes: see [`History`].
async fn superseded(connection: &mut SqliteConnection) -> Result<VecDeque<(Revision, u64)>, sqlx::Error> {
    sqlx::query(
        "SELECT new.revision, new.key, new.value IS NULL, length(old.value) FROM log new LEFT JOIN log old ON old.revision = new.previous \
         WHERE new.value IS NULL OR old.revision IS NOT NULL ORDER BY new.revision",
    )
    .fetch(connection)
    .and_then(|row| async move {
        let own = row_bytes(row.try_get(1)?, None);
        let tombstone = if row.try_get::<bool, _>(2)? { own } else { 0 };
        let replaced = row.try_get::<Option<i64>, _>(3)?.map_or(0, |length| own + unsigned(length));
        Ok((unsigned(row.try_get(0)?), tombstone + replaced))
    })
    .try_collect()
    .await
}

/// The store's error for an error of SQLite.
pub(super) fn failed(path: &Path, doing: &str, source: sqlx::Error) -> StoreError {
    // Primary result codes: https://www.sqlite.org/rescode.html
    let code = source.as_database_error().and_then(|e| e.code().and_then(|c| c.parse::<i32>().ok())).map(|code| code & 0xff);
    match code {
        Some(13) => StoreError::DiskFull { path: path.display().to_string() },
        Some(5) => StoreError::InUse { path: path.display().to_string(), pid: "unknown".to_owned() },
        _ => StoreError::Backend { doing: format!("{doing} {}", path.display()), source: Arc::new(source) },
    }
}
