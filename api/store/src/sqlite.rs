//! The embedded backend: one SQLite file in WAL mode with `synchronous=FULL`.
//!
//! The store is one table, the log. Each row is a write. The current value of a key is the row that no later row names
//! as `previous`. Conditions are checked against a map in memory from key to revision, so a write costs one appended
//! row and no read. One task owns the writing connection. It stores all waiting writes with a single statement, so that
//! they share one fsync. Compaction removes rows that a later row replaced. It runs between writes, a bounded slice at
//! a time, and keeps the file within a small multiple of the live data.

mod history;
mod open;
mod tools;
mod wal;
mod writer;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use api_tasks::{TaskFailure, Tasks};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{Row, SqlitePool as Pool};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::tail::Tail;
use crate::{Batch, Entry, Event, Events, Revision, Snapshot, Store, StoreError, Write};

pub use tools::{Backup, Health, backup, check, restore};

/// The maximum of requests in the writer's queue. Further callers wait for a free entry.
const QUEUE_LEN_MAX: usize = 4_096;
/// Rows per read of a watch that is behind the tail.
const HISTORY_BATCH: i64 = 512;

/// The path of the database and the length of its history.
#[derive(Clone, Debug)]
pub struct SqliteConfig {
    /// The database file. The `-wal`, `-shm` and `.lock` files are beside it.
    pub path: PathBuf,
    /// The number of revisions before the head from which watches can resume. It is smaller if these revisions would
    /// need more bytes than the limit of the history.
    pub history_len: u64,
    /// The history may always take at least this number of bytes.
    pub history_bytes_min: u64,
}

impl SqliteConfig {
    /// A database at the given path with 10,000 revisions of history, or 4 MiB of it.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), history_len: 10_000, history_bytes_min: 4 << 20 }
    }
}

/// The SQLite backend. Only one process may open it; a second one gets [`StoreError::InUse`].
pub struct SqliteStore {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
    tasks: Tasks,
    /// Cancelled when the writer may end.
    stopping: CancellationToken,
}

/// The state that the writer and the readers share.
struct Shared {
    path: PathBuf,
    readers: Pool,
    tail: Tail,
    compacted: std::sync::atomic::AtomicU64,
    /// The lock, held while the store is open.
    _lock: std::fs::File,
}

enum Request {
    Write(Write, oneshot::Sender<Result<Revision, StoreError>>),
    Compact(Revision, oneshot::Sender<Result<(), StoreError>>),
    Check(oneshot::Sender<()>),
    Close(oneshot::Sender<()>),
}

/// A key's current row.
#[derive(Clone, Copy, Debug)]
struct Current {
    revision: Revision,
    /// The revision that created the key.
    created: Revision,
    /// The row's size.
    bytes: u64,
}

type Index = HashMap<Arc<str>, Current>;

impl SqliteStore {
    /// Opens or creates the database.
    ///
    /// # Errors
    /// [`StoreError::InUse`], [`StoreError::Newer`], or the error of SQLite.
    pub async fn open(config: SqliteConfig) -> Result<Self, StoreError> {
        let opened = open::open(&config).await?;
        let shared = Arc::new(Shared {
            path: config.path.clone(),
            readers: opened.readers,
            tail: Tail::new(opened.head),
            compacted: opened.compacted.into(),
            _lock: opened.lock,
        });
        let (requests, queue) = mpsc::channel(QUEUE_LEN_MAX);
        let writer = writer::Writer::new(Arc::clone(&shared), opened.writer, opened.index, opened.history, &config);
        let stopping = CancellationToken::new();
        let tasks = Tasks::new(stopping.clone());
        tasks.own("store/writer", writer.run(queue));
        Ok(Self { shared, requests, tasks, stopping })
    }

    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(request(answer)).await.map_err(|_| StoreError::Closed)?;
        answered.await.map_err(|_| StoreError::Closed)
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn write(&self, write: Write) -> Result<Revision, StoreError> {
        self.ask(|answer| Request::Write(write, answer)).await?
    }

    async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        snapshot(&self.shared.readers).await.map_err(|source| self.shared.failed("reading a snapshot", source))
    }

    async fn head(&self) -> Result<Revision, StoreError> {
        if self.requests.is_closed() { Err(StoreError::Closed) } else { Ok(self.shared.tail.head()) }
    }

    async fn watch(&self, after: Revision) -> Result<Events, StoreError> {
        self.shared.check_compacted(after)?;
        let follower = (Arc::clone(&self.shared), self.shared.tail.follow(), after);
        Ok(futures::stream::unfold(follower, |(shared, mut head, after)| async move {
            loop {
                let found = match shared.tail.after(after) {
                    Some(events) => Ok(events),
                    None => shared.history(after).await,
                };
                match found {
                    Ok(events) if events.is_empty() => {
                        if head.changed().await.is_err() {
                            return Some((Err(StoreError::Closed), (shared, head, after)));
                        }
                    }
                    Ok(events) => {
                        let revision = events.last().map_or(after, |event| event.revision);
                        return Some((Ok(Batch { events, revision }), (shared, head, revision)));
                    }
                    Err(error) => return Some((Err(error), (shared, head, after))),
                }
            }
        })
        .boxed())
    }

    async fn compacted(&self) -> Result<Revision, StoreError> {
        // Without its writer, the store could still serve reads. But it is closed, so it returns an error.
        if self.requests.is_closed() { Err(StoreError::Closed) } else { Ok(self.shared.compacted()) }
    }

    async fn compact(&self, upto: Revision) -> Result<(), StoreError> {
        self.ask(|answer| Request::Compact(upto, answer)).await?
    }

    async fn size_bytes(&self) -> Result<u64, StoreError> {
        let wal = self.shared.path.with_extension("db-wal");
        let size = |path: &std::path::Path| std::fs::metadata(path).map_or(0, |m| m.len());
        Ok(size(&self.shared.path) + size(&wal))
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.ask(Request::Check).await
    }

    async fn failed(&self) -> TaskFailure {
        self.tasks.failed().await
    }

    async fn close(&self) {
        self.stopping.cancel();
        // If the writer has ended, it has already closed the files.
        let _gone = self.ask(Request::Close).await;
    }
}

impl Shared {
    fn compacted(&self) -> Revision {
        self.compacted.load(std::sync::atomic::Ordering::Acquire)
    }

    fn check_compacted(&self, after: Revision) -> Result<(), StoreError> {
        let oldest = self.compacted();
        if after < oldest { Err(StoreError::Compacted { oldest }) } else { Ok(()) }
    }

    /// The next events after a revision that is older than the tail.
    async fn history(&self, after: Revision) -> Result<Vec<Event>, StoreError> {
        let rows =
            sqlx::query("SELECT revision, key, value, previous FROM log WHERE revision > ? AND revision <= ? ORDER BY revision LIMIT ?")
                .bind(signed(after))
                .bind(signed(self.tail.head()))
                .bind(HISTORY_BATCH)
                .fetch_all(&self.readers)
                .await;
        let events = rows.and_then(|rows| rows.iter().map(event).collect()).map_err(|source| self.failed("reading history", source))?;
        // The check is after the read: a concurrent compaction may have removed rows, which would be a gap.
        self.check_compacted(after)?;
        Ok(events)
    }

    fn failed(&self, doing: &str, source: sqlx::Error) -> StoreError {
        open::failed(&self.path, doing, source)
    }
}

async fn snapshot(readers: &SqlitePool) -> Result<Snapshot, sqlx::Error> {
    let mut transaction = readers.begin().await?;
    let revision = sqlx::query_scalar::<_, i64>(open::HEAD).fetch_one(&mut *transaction).await?;
    let mut entries: Vec<Entry> = sqlx::query(
        "SELECT key, value, revision, created FROM log \
         WHERE value IS NOT NULL AND revision NOT IN (SELECT previous FROM log WHERE previous IS NOT NULL)",
    )
    .fetch(&mut *transaction)
    .and_then(|row| async move {
        Ok(Entry {
            key: row.try_get::<&str, _>(0)?.into(),
            value: Bytes::from(row.try_get::<Vec<u8>, _>(1)?),
            revision: unsigned(row.try_get(2)?),
            created: unsigned(row.try_get(3)?),
        })
    })
    .try_collect()
    .await?;
    transaction.commit().await?;
    entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    Ok(Snapshot { revision: unsigned(revision), entries })
}

fn event(row: &SqliteRow) -> Result<Event, sqlx::Error> {
    Ok(Event {
        revision: unsigned(row.try_get(0)?),
        key: row.try_get::<&str, _>(1)?.into(),
        value: row.try_get::<Option<Vec<u8>>, _>(2)?.map(Bytes::from),
        previous: row.try_get::<Option<i64>, _>(3)?.map(unsigned),
    })
}

/// SQLite's integers are signed; revisions stay far below the sign bit.
fn signed(revision: Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

fn unsigned(revision: i64) -> Revision {
    Revision::try_from(revision).unwrap_or_default()
}

#[cfg(test)]
mod tests;
