//! Keys, bytes and one global revision: the log that all state lives in. A backend stores what it
//! is given and knows neither kinds nor JSON. [`Store`] is the promise; `battery` checks it on
//! every backend.

#[cfg(any(test, feature = "battery"))]
pub mod battery;
mod error;
mod memory;
mod sqlite;
mod tail;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

pub use error::StoreError;
pub use memory::MemoryStore;
pub use sqlite::{SqliteConfig, SqliteStore};

/// A position in the log. Every write gets the next one; the first is 1.
pub type Revision = u64;

/// What must be true of a key for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The key has no value.
    Absent,
    /// The key's last write has this revision.
    At(Revision),
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

/// Events in revision order, in batches that are never empty. Ends only with an error.
pub type Events = BoxStream<'static, Result<Vec<Event>, StoreError>>;

/// A log of conditional writes.
///
/// Promises, checked by the battery:
/// - a write that was answered is durable: it is there after `kill -9` and after a power cut;
/// - revisions grow by one a write; writes are linearizable;
/// - a failed condition changes nothing and answers [`StoreError::Conflict`] with the revision that
///   the key is at;
/// - [`Store::watch`] yields every event after the revision it is given, once, in order, and an
///   event only after it is durable; or it fails with [`StoreError::Compacted`], never with a gap;
/// - the event of an answered write is delivered without a further write.
#[async_trait]
pub trait Store: Send + Sync {
    /// Performs one write and answers its revision.
    async fn write(&self, write: Write) -> Result<Revision, StoreError>;

    /// All current entries.
    async fn snapshot(&self) -> Result<Snapshot, StoreError>;

    /// Events after `after`, first from history, then as they happen.
    async fn watch(&self, after: Revision) -> Result<Events, StoreError>;

    /// The oldest revision that [`Store::watch`] accepts; [`StoreError::Closed`] where nothing can be
    /// written any more.
    async fn compacted(&self) -> Result<Revision, StoreError>;

    /// Forgets history up to and including `upto`; current entries stay.
    async fn compact(&self, upto: Revision) -> Result<(), StoreError>;

    /// The store's size on disk in bytes; 0 when it has none.
    async fn size_bytes(&self) -> Result<u64, StoreError>;

    /// Stops accepting writes, finishes those under way, and closes files.
    async fn close(&self);
}
