//! Keys, bytes and one global revision: the log that all state lives in. A backend stores what it
//! is given and knows neither kinds nor JSON. [`Store`] is the promise; `battery` checks it on
//! every backend.

#[cfg(any(test, feature = "battery"))]
pub mod battery;
mod error;
mod etcd;
mod memory;
mod sqlite;
mod tail;

use std::sync::Arc;

use api_tasks::TaskFailure;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

pub use error::StoreError;
pub use etcd::{EtcdConfig, EtcdStore, EtcdTls};
pub use memory::MemoryStore;
pub use sqlite::{Backup, Health, SqliteConfig, SqliteStore, backup, check, restore};

/// A position in the log. Every write gets a later one than all writes before it.
pub type Revision = u64;

/// What must be true of a key for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The key has no value.
    Absent,
    /// The key's last write has this revision.
    At(Revision),
}

/// Another key that must still be where it was for a write to happen. Who decides what to write while a key is theirs
/// (a lock) writes only as long as it is: also a write that is late, whose answer nobody waits for any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The key.
    pub key: Arc<str>,
    /// The revision of its last write.
    pub revision: Revision,
}

/// One conditional write of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The key.
    pub key: Arc<str>,
    /// New value; `None` deletes.
    pub value: Option<Bytes>,
    /// The condition.
    pub expect: Expect,
    /// Further conditions, on other keys.
    pub guards: Vec<Guard>,
}

impl Write {
    /// A write without guards; a `value` of `None` deletes.
    pub fn new(key: impl Into<Arc<str>>, value: Option<Bytes>, expect: Expect) -> Self {
        Self { key: key.into(), value, expect, guards: Vec::new() }
    }
}

/// A key's current value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Arc<str>,
    /// Its value.
    pub value: Bytes,
    /// The revision of the write that made this value.
    pub revision: Revision,
    /// The revision of the write that created the key.
    pub created: Revision,
}

/// One write that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its revision.
    pub revision: Revision,
    /// The key.
    pub key: Arc<str>,
    /// The new value; `None` for a delete.
    pub value: Option<Bytes>,
    /// The revision of the value it replaced or deleted; `None` for a create.
    pub previous: Option<Revision>,
}

/// Everything current at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The revision.
    pub revision: Revision,
    /// The entries in key order.
    pub entries: Vec<Entry>,
}

/// What a watch yields: some events, and how far it has come with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Events in revision order; none when only the revision grew, by writes that are not events.
    pub events: Vec<Event>,
    /// Every event up to this revision has been yielded.
    pub revision: Revision,
}

/// Batches in revision order. Ends only with an error.
pub type Events = BoxStream<'static, Result<Batch, StoreError>>;

/// A log of conditional writes.
///
/// Promises, checked by the battery:
/// - a write that was answered is durable: it is there after `kill -9` and after a power cut;
/// - revisions grow with every write (by one where nobody else uses the backend); writes are
///   linearizable;
/// - a failed condition changes nothing and answers [`StoreError::Conflict`] with the revision that
///   the key is at, when the write that put it there is durable and in the log;
/// - so does a guard that does not hold, with [`StoreError::Unguarded`] unless the key's own condition
///   fails too; guards are compared at the moment of the write, however late that is;
/// - [`Store::watch`] yields every event after the revision it is given, once, in order, and an
///   event only after it is durable; or it fails with [`StoreError::Compacted`], never with a gap;
/// - every watch reaches each revision that [`Store::write`], [`Store::snapshot`] or [`Store::head`]
///   answered, without a further write of the caller.
#[async_trait]
pub trait Store: Send + Sync {
    /// Performs one write and answers its revision.
    async fn write(&self, write: Write) -> Result<Revision, StoreError>;

    /// All current entries.
    async fn snapshot(&self) -> Result<Snapshot, StoreError>;

    /// A revision that no write answered before the call is beyond, whoever made it: a reader who
    /// has followed the log up to it reads the present.
    async fn head(&self) -> Result<Revision, StoreError>;

    /// Whether others write to the same log, so that the present has to be asked for.
    fn is_shared(&self) -> bool {
        false
    }

    /// Events after `after`, first from history, then as they happen.
    async fn watch(&self, after: Revision) -> Result<Events, StoreError>;

    /// The oldest revision that [`Store::watch`] accepts; [`StoreError::Closed`] where nothing can be
    /// written any more.
    async fn compacted(&self) -> Result<Revision, StoreError>;

    /// Forgets history up to and including `upto`; current entries stay.
    async fn compact(&self, upto: Revision) -> Result<(), StoreError>;

    /// The store's size on disk in bytes; 0 when it has none.
    async fn size_bytes(&self) -> Result<u64, StoreError>;

    /// Whether writes are taken up: asks whoever performs them, and so waits for what is under way.
    async fn check(&self) -> Result<(), StoreError> {
        self.head().await.map(drop)
    }

    /// Waits for the failure of one of the store's background tasks, after which it cannot be used any more; for ever
    /// where there is none.
    async fn failed(&self) -> TaskFailure {
        std::future::pending().await
    }

    /// Stops accepting writes, finishes those under way, and closes files.
    async fn close(&self);
}
