//! The one task that writes. It gathers what waits, checks each condition against the index, gives
//! out revisions, stores the batch by one statement (so by one transaction and one fsync), and only
//! then answers. Between batches it compacts, a slice at a time.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection, SqlStr};
use tokio::sync::{mpsc, oneshot};

use super::history::{History, row_bytes};
use super::{Current, Index, Request, Shared, SqliteConfig, signed};
use crate::{Event, Expect, Guard, Revision, StoreError, Write};

/// Writes stored by one statement; with five parameters each this is far below SQLite's bound.
pub(super) const BATCH_LEN_MAX: usize = 128;
/// Revisions compacted by one transaction when somebody asks for compaction.
const COMPACT_SLICE: u64 = 1_000;
/// Free pages handed back to the file system at once; as many are kept for new rows.
const VACUUM_PAGES: i64 = 256;

type Answer = oneshot::Sender<Result<Revision, StoreError>>;

pub(super) struct Writer {
    shared: Arc<Shared>,
    connection: SqliteConnection,
    index: Index,
    history: History,
    history_len: u64,
    history_bytes_min: u64,
    /// Pages of the file that are unused, at the last look.
    free_pages: i64,
}

/// A write whose condition held, with what undoes its mark in the index.
struct Staged {
    event: Event,
    created: Revision,
    bytes: u64,
    before: Option<Current>,
    answer: Answer,
}

/// Writes that are stored together.
#[derive(Default)]
struct Batch {
    staged: Vec<Staged>,
    /// Writes whose conditions do not hold, and why. The write that is the reason may be in this very batch, so
    /// they are answered when that is durable and can be seen.
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

    /// Serves requests until it is told to close or every sender is gone.
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
                        // The asker may have gone; compaction is done all the same.
                        let _gone = answer.send(self.compact_all(upto).await);
                    }
                    Request::Check(answer) => {
                        // The asker may have stopped waiting.
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
            // The asker may have stopped waiting.
            let _gone = answer.send(());
        }
    }

    /// Checks a write against the index and marks it there.
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

    /// Which of a write's conditions does not hold.
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

    /// Stores a batch, makes its events visible, and answers; on failure nothing of it remains.
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
            // The asker may have gone; nothing was written.
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
            // The asker may have gone; the write stands, as after any lost answer.
            let _gone = write.answer.send(Ok(write.event.revision));
        }
    }

    fn undo(&mut self, staged: Vec<Staged>, error: &StoreError) {
        for write in staged.into_iter().rev() {
            match write.before {
                Some(before) => self.index.insert(write.event.key, before),
                None => self.index.remove(&write.event.key),
            };
            // The asker may have gone; nothing was written.
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

    /// Compacts a slice when that is due, or hands free space back.
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

    /// Hands a slice of what is free back to the file system.
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

    /// Removes rows that a row up to `upto` replaced, and tombstones up to it.
    async fn compact(&mut self, upto: Revision) -> Result<(), StoreError> {
        let from = self.shared.compacted();
        // Said before it is done: who reads history meanwhile must not take what is left of it for all of it.
        self.shared.compacted.store(upto, Ordering::Release);
        if let Err(source) = compact(&mut self.connection, from, upto).await {
            self.shared.compacted.store(from, Ordering::Release);
            return Err(self.shared.failed("compacting", source));
        }
        self.history.compacted(upto);
        tracing::debug!(revision = upto, "history compacted");
        // What was deleted is deleted, whether or not the file gets smaller for it.
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

/// One transaction, kept by hand: when the disk is full SQLite may roll back by itself, and sqlx's own
/// transactions then lose count, so that a later one stays open and takes answered writes with it.
async fn compact(connection: &mut SqliteConnection, from: Revision, upto: Revision) -> Result<(), sqlx::Error> {
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
    let done = match delete_history(connection, from, upto).await {
        Ok(()) => sqlx::query("COMMIT").execute(&mut *connection).await.map(drop),
        failed => failed,
    };
    if done.is_err() {
        // Fails only where nothing is left to roll back.
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

/// Answers how many free pages are left.
async fn vacuum(connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    sqlx::query(AssertSqlSafe(format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))).execute(&mut *connection).await?;
    sqlx::query_scalar("PRAGMA freelist_count").fetch_one(connection).await
}

/// One statement for a batch of up to so many rows. Sizes are few, so that SQLite keeps all statements
/// prepared in little memory; what is not bound is NULL, and rows without revision are none.
fn insert_statement(rows: usize) -> SqlStr {
    let mut sql = String::with_capacity(120 + rows * 12);
    sql.push_str("INSERT INTO log (revision, key, value, previous, created) SELECT * FROM (VALUES ");
    for row in 0..rows {
        sql.push_str(if row == 0 { "(?,?,?,?,?)" } else { ",(?,?,?,?,?)" });
    }
    sql.push_str(") WHERE column1 IS NOT NULL");
    sqlx::SqlSafeStr::into_sql_str(AssertSqlSafe(sql))
}
