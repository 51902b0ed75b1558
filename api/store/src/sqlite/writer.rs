//! The task that writes. It collects the waiting writes, checks their conditions against the index, assigns revisions,
//! and stores the batch with one statement (one transaction, one fsync). Then it answers the callers. Between batches
//! it compacts, a slice at a time.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection, SqlStr};
use tokio::sync::{mpsc, oneshot};

use super::history::{History, row_bytes};
use super::{Current, Index, Request, Shared, SqliteConfig, signed};
use crate::{Event, Expect, Guard, Revision, StoreError, Write};

/// The maximum of writes in one statement. With five parameters each, this is far below SQLite's limit.
pub(super) const BATCH_LEN_MAX: usize = 128;
/// Revisions per transaction of a requested compaction.
const COMPACT_SLICE: u64 = 1_000;
/// The number of free pages that are returned to the file system at once. The same number stays for new rows.
const VACUUM_PAGES: i64 = 256;

type Answer = oneshot::Sender<Result<Revision, StoreError>>;

pub(super) struct Writer {
    shared: Arc<Shared>,
    connection: SqliteConnection,
    index: Index,
    history: History,
    history_len: u64,
    history_bytes_min: u64,
    /// Unused pages of the file, at the last check.
    free_pages: i64,
}

/// A write whose condition held, with the entry of the index that it replaced.
struct Staged {
    event: Event,
    created: Revision,
    bytes: u64,
    before: Option<Current>,
    answer: Answer,
}

/// The writes of one transaction.
#[derive(Default)]
struct Batch {
    staged: Vec<Staged>,
    /// Writes whose conditions do not hold, with the error. The conflicting write may be in the same batch, so the
    /// callers get the error only when that write is durable and visible.
    refused: Vec<(StoreError, Answer)>,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, connection: SqliteConnection, index: Index, history: History, config: &SqliteConfig) -> Self {
        Self {
            shared,
            connection,
            index,
            history,
            history_len: config.history_len,
            history_bytes_min: config.history_bytes_min,
            free_pages: 0,
        }
    }

    /// Serves requests until a request to close arrives or every sender is dropped.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Request>) {
        let mut requests = Vec::with_capacity(BATCH_LEN_MAX);
        let mut closed = None;
        while closed.is_none() && queue.recv_many(&mut requests, BATCH_LEN_MAX).await > 0 {
            let mut batch = Batch::default();
            for request in requests.drain(..) {
                match request {
                    Request::Write(write, answer) => self.stage(write, answer, &mut batch),
                    Request::Compact(upto, answer) => {
                        self.commit(std::mem::take(&mut batch)).await;
                        // The caller may have been dropped; the compaction happens anyway.
                        let _gone = answer.send(self.compact_all(upto).await);
                    }
                    Request::Check(answer) => {
                        // The caller may have been dropped.
                        let _gone = answer.send(());
                    }
                    Request::Close(answer) => closed = Some(answer),
                }
            }
            self.commit(batch).await;
            self.keep_short().await;
        }
        queue.close();
        self.close().await;
        if let Some(answer) = closed {
            // The caller may have been dropped.
            let _gone = answer.send(());
        }
    }

    /// Checks the conditions of a write against the index. If they hold, updates the index.
    fn stage(&mut self, write: Write, answer: Answer, batch: &mut Batch) {
        let before = self.index.get(&write.key).copied();
        if let Some(refusal) = self.refusal(&write, before) {
            batch.refused.push((refusal, answer));
            return;
        }
        let revision = batch.staged.last().map_or_else(|| self.shared.tail.head(), |last| last.event.revision) + 1;
        let created = before.map_or(revision, |current| current.created);
        let bytes = row_bytes(&write.key, write.value.as_deref());
        match &write.value {
            Some(_) => self.index.insert(Arc::clone(&write.key), Current { revision, created, bytes }),
            None => self.index.remove(&write.key),
        };
        let event = Event { revision, key: write.key, value: write.value, previous: before.map(|current| current.revision) };
        batch.staged.push(Staged { event, created, bytes, before, answer });
    }

    /// The error of the first condition that does not hold.
    fn refusal(&self, write: &Write, before: Option<Current>) -> Option<StoreError> {
        let wanted = match write.expect {
            Expect::Absent => None,
            Expect::At(revision) => Some(revision),
        };
        let current = before.map(|current| current.revision);
        if current != wanted {
            return Some(StoreError::Conflict { current });
        }
        let is_lost = |guard: &&Guard| self.index.get(&guard.key).is_none_or(|current| current.revision != guard.revision);
        write.guards.iter().find(is_lost).map(|guard| StoreError::Unguarded { key: Arc::clone(&guard.key) })
    }

    /// Stores a batch, publishes its events, and answers the callers. A failed batch leaves nothing behind.
    async fn commit(&mut self, Batch { staged, refused }: Batch) {
        let stored = match staged.is_empty() {
            true => Ok(()),
            false => self.insert(&staged).await.map_err(|source| self.shared.failed("writing to", source)),
        };
        match &stored {
            Ok(()) => self.publish(staged),
            Err(error) => {
                tracing::error!(error = error as &dyn Error, writes = staged.len(), "store write failed");
                self.undo(staged, error);
            }
        }
        for (refusal, answer) in refused {
            // The caller may have been dropped; nothing was written.
            let _gone = answer.send(Err(stored.clone().err().unwrap_or(refusal)));
        }
    }

    fn publish(&mut self, staged: Vec<Staged>) {
        if staged.is_empty() {
            return;
        }
        self.shared.tail.push(staged.iter().map(|write| write.event.clone()));
        for write in staged {
            let replaced = write.before.map(|current| current.bytes);
            self.history.stored(write.event.revision, write.bytes, write.event.value.is_none(), replaced);
            // The caller may have been dropped; the write remains, as after any lost answer.
            let _gone = write.answer.send(Ok(write.event.revision));
        }
    }

    fn undo(&mut self, staged: Vec<Staged>, error: &StoreError) {
        for write in staged.into_iter().rev() {
            match write.before {
                Some(before) => self.index.insert(write.event.key, before),
                None => self.index.remove(&write.event.key),
            };
            // The caller may have been dropped; nothing was written.
            let _gone = write.answer.send(Err(error.clone()));
        }
    }

    async fn insert(&mut self, staged: &[Staged]) -> Result<(), sqlx::Error> {
        let mut query = sqlx::query(insert_statement(staged.len().next_power_of_two()));
        for write in staged {
            query = query
                .bind(signed(write.event.revision))
                .bind(write.event.key.as_ref())
                .bind(write.event.value.as_deref())
                .bind(write.event.previous.map(signed))
                .bind(signed(write.created));
        }
        query.execute(&mut self.connection).await.map(drop)
    }

    /// Compacts a slice if compaction is due, or else returns free pages.
    async fn keep_short(&mut self) {
        let (head, compacted) = (self.shared.tail.head(), self.shared.compacted());
        let done = match self.history.due(head, compacted, self.history_len, self.history_bytes_min) {
            Some(upto) => self.compact(upto).await,
            None if self.free_pages > VACUUM_PAGES => self.vacuum().await,
            None => Ok(()),
        };
        if let Err(error) = done {
            tracing::error!(error = &error as &dyn Error, "compaction failed; it will be tried again");
        }
    }

    /// Returns some free pages to the file system.
    async fn vacuum(&mut self) -> Result<(), StoreError> {
        let left = vacuum(&mut self.connection).await;
        self.free_pages = left.map_err(|source| self.shared.failed("handing back free pages of", source))?;
        Ok(())
    }

    async fn compact_all(&mut self, upto: Revision) -> Result<(), StoreError> {
        let upto = upto.min(self.shared.tail.head());
        while self.shared.compacted() < upto {
            self.compact((self.shared.compacted() + COMPACT_SLICE).min(upto)).await?;
        }
        Ok(())
    }

    /// Removes rows that a row up to `upto` replaced, and the tombstones up to `upto`.
    async fn compact(&mut self, upto: Revision) -> Result<(), StoreError> {
        let from = self.shared.compacted();
        // Published before the rows are deleted: a concurrent reader of history must notice that rows are missing.
        self.shared.compacted.store(upto, Ordering::Release);
        if let Err(source) = compact(&mut self.connection, from, upto).await {
            self.shared.compacted.store(from, Ordering::Release);
            return Err(self.shared.failed("compacting", source));
        }
        self.history.compacted(upto);
        tracing::debug!(revision = upto, "history compacted");
        // The rows are deleted even if the return of pages fails.
        if let Err(error) = self.vacuum().await {
            tracing::warn!(error = &error as &dyn Error, "handing back free pages failed");
        }
        Ok(())
    }

    async fn close(self) {
        self.shared.readers.close().await;
        if let Err(error) = self.connection.close().await {
            tracing::warn!(error = &error as &dyn Error, "closing the database");
        }
    }
}

/// A transaction without sqlx's own bookkeeping. If the disk is full, SQLite may roll back by itself. sqlx then loses
/// count of its transactions: a later transaction stays open, and acknowledged writes are lost with it.
async fn compact(connection: &mut SqliteConnection, from: Revision, upto: Revision) -> Result<(), sqlx::Error> {
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
    let done = match delete_history(connection, from, upto).await {
        Ok(()) => sqlx::query("COMMIT").execute(&mut *connection).await.map(drop),
        failed => failed,
    };
    if done.is_err() {
        // Fails only if SQLite has already rolled back.
        let _rolled_back_already = sqlx::query("ROLLBACK").execute(connection).await;
    }
    done
}

async fn delete_history(connection: &mut SqliteConnection, from: Revision, upto: Revision) -> Result<(), sqlx::Error> {
    for statement in [
        "DELETE FROM log WHERE revision IN (SELECT previous FROM log WHERE revision > ? AND revision <= ? AND previous IS NOT NULL)",
        "DELETE FROM log WHERE revision > ? AND revision <= ? AND value IS NULL",
    ] {
        sqlx::query(statement).bind(signed(from)).bind(signed(upto)).execute(&mut *connection).await?;
    }
    sqlx::query("UPDATE meta SET value = ? WHERE name = 'compacted'").bind(signed(upto)).execute(connection).await.map(drop)
}

/// Returns the number of remaining free pages.
async fn vacuum(connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    sqlx::query(AssertSqlSafe(format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))).execute(&mut *connection).await?;
    sqlx::query_scalar("PRAGMA freelist_count").fetch_one(connection).await
}

/// The statement for a batch of up to `rows` rows. There are few sizes, so that all statements stay prepared in little
/// memory. Unbound parameters are NULL, and a row without a revision is not inserted.
fn insert_statement(rows: usize) -> SqlStr {
    let mut sql = String::with_capacity(120 + rows * 12);
    sql.push_str("INSERT INTO log (revision, key, value, previous, created) SELECT * FROM (VALUES ");
    for row in 0..rows {
        sql.push_str(if row == 0 { "(?,?,?,?,?)" } else { ",(?,?,?,?,?)" });
    }
    sql.push_str(") WHERE column1 IS NOT NULL");
    sqlx::SqlSafeStr::into_sql_str(AssertSqlSafe(sql))
}
