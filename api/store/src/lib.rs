//! The log that stores all state of the cluster: keys, bytes and one global revision. A backend stores bytes and knows
//! neither kinds nor JSON. The trait [`Store`] states the promises; `battery` checks them on every backend.

#[cfg(any(test, feature = "battery"))]
pub mod battery;
mod error;
mod etcd;
#[cfg(feature = "fixtures")]
pub mod fixtures;
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

/// A position in the log. Every write gets a greater revision than all writes before it.
pub type Revision = u64;

/// The condition on a key under which a write happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The key has no value.
    Absent,
    /// The key's last write has this revision.
    At(Revision),
}

/// A condition on another key: it must still have the given revision when the write happens. A caller that holds a lock
/// (a key of its own) guards its writes with that key. So a late write fails after the caller has lost the lock.
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
    /// The new value; `None` deletes the key.
    pub value: Option<Bytes>,
    /// The condition.
    pub expect: Expect,
    /// Conditions on other keys.
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
    /// The revision of the write that stored this value.
    pub revision: Revision,
    /// The revision of the write that created the key.
    pub created: Revision,
}

/// A committed write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its revision.
    pub revision: Revision,
    /// The key.
    pub key: Arc<str>,
    /// The new value; `None` for a delete.
    pub value: Option<Bytes>,
    /// The revision of the value that the write replaced or deleted; `None` for a create.
    pub previous: Option<Revision>,
}

/// All current entries at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The revision.
    pub revision: Revision,
    /// The entries in key order.
    pub entries: Vec<Entry>,
}

/// One item of a watch: events, and the revision that the watch has reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Events in revision order. Empty if only the revision grew, by writes that are no events.
    pub events: Vec<Event>,
    /// The watch has yielded every event up to this revision.
    pub revision: Revision,
}

/// Batches in revision order. The stream ends only with an error.
pub type Events = BoxStream<'static, Result<Batch, StoreError>>;

/// A log of conditional writes.
///
/// Promises, checked by the battery:
/// - a write that returned is durable: it survives `kill -9` and a power cut;
/// - revisions grow with every write (by one if no other program uses the backend); writes are linearizable;
/// - a failed condition changes nothing and returns [`StoreError::Conflict`] with the current revision of the key, once
///   the write of that revision is durable and in the log;
/// - a failed guard changes nothing and returns [`StoreError::Unguarded`], unless the key's own condition fails too;
///   guards are compared at the moment of the write, even if the write is late;
/// - [`Store::watch`] returns every event after the given revision, once, in order, and only after the event is
///   durable; or it fails with [`StoreError::Compacted`]; it never leaves a gap;
/// - every watch reaches each revision that [`Store::write`], [`Store::snapshot`] or [`Store::head`]
///   returned, without a further write of the caller.
#[async_trait]
pub trait Store: Send + Sync {
    /// Performs one write and returns its revision.
    async fn write(&self, write: Write) -> Result<Revision, StoreError>;

    /// All current entries.
    async fn snapshot(&self) -> Result<Snapshot, StoreError>;

    /// A revision that is not below any write, by any writer, that returned before the call. A reader that has followed
    /// the log up to this revision sees the present state.
    async fn head(&self) -> Result<Revision, StoreError>;

    /// Whether other processes write to the same log, so that only the backend knows the head.
    fn is_shared(&self) -> bool {
        false
    }

    /// The events after `after`: first those of the history, then new ones.
    async fn watch(&self, after: Revision) -> Result<Events, StoreError>;

    /// The oldest revision that [`Store::watch`] accepts; [`StoreError::Closed`] after the store was closed.
    async fn compacted(&self) -> Result<Revision, StoreError>;

    /// Removes history up to and including `upto`; current entries stay.
    async fn compact(&self, upto: Revision) -> Result<(), StoreError>;

    /// The store's size on disk in bytes; 0 if it is not on disk.
    async fn size_bytes(&self) -> Result<u64, StoreError>;

    /// Checks that the store accepts writes. The check asks the writer, so it waits for the writes in progress.
    async fn check(&self) -> Result<(), StoreError> {
        self.head().await.map(drop)
    }

    /// Waits for the failure of a background task, after which the store is unusable. The future stays pending if no
    /// task fails.
    async fn failed(&self) -> TaskFailure {
        std::future::pending().await
    }

    /// Rejects new writes, finishes those in progress, and closes the files.
    async fn close(&self);
}
