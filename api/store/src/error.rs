//! Errors of the store.

use std::sync::Arc;

use thiserror::Error;

use crate::Revision;

/// A failed store operation.
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    /// A write's condition does not hold.
    #[error("the key is at revision {current:?}")]
    Conflict {
        /// The revision of the key; `None` when it is absent.
        current: Option<Revision>,
    },
    /// A write's guard does not hold: the state that the write was based on may have changed.
    #[error("{key} is no longer held")]
    Unguarded {
        /// The guard's key.
        key: Arc<str>,
    },
    /// History before this revision is gone.
    #[error("required revision has been compacted; the oldest is {oldest}")]
    Compacted {
        /// The oldest revision that can be watched from.
        oldest: Revision,
    },
    /// The address of a server is not valid.
    #[error("{address:?} is no address of an etcd server: {why}")]
    Address {
        /// The address.
        address: String,
        /// The problem.
        why: String,
    },
    /// A file is not usable.
    #[error("{path} {why}")]
    File {
        /// The file.
        path: String,
        /// The problem.
        why: String,
    },
    /// Another process has the database open.
    #[error("{path} is in use by another process (pid {pid})")]
    InUse {
        /// The database.
        path: String,
        /// The process that has it open, where that is known.
        pid: String,
    },
    /// The database was written by a newer version.
    #[error(
        "{path} was written by a newer version of skiff (schema {found}, this version reads up to {known}); upgrade skiff or restore a backup"
    )]
    Newer {
        /// The database.
        path: String,
        /// Its schema.
        found: i64,
        /// The newest schema that this version supports.
        known: i64,
    },
    /// The disk is full. The write left nothing behind.
    #[error("no space left on the disk of {path}")]
    DiskFull {
        /// The database.
        path: String,
    },
    /// etcd has reached its quota. The write left nothing behind. The text is etcd's, which its guides explain.
    #[error("etcdserver: mvcc: database space exceeded")]
    SpaceExceeded,
    /// The store is closing.
    #[error("the store is closed")]
    Closed,
    /// The backend failed.
    #[error("{doing}")]
    Backend {
        /// The operation.
        doing: String,
        /// The error of the backend.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}
