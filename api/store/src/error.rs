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
        /// The revision of the key; `None` if the key is absent.
        current: Option<Revision>,
    },
    /// A write's guard does not hold. The state that the caller read may have changed.
    #[error("{key} is no longer held")]
    Unguarded {
        /// The guard's key.
        key: Arc<str>,
    },
    /// History before this revision is gone.
    #[error("required revision has been compacted; the oldest is {oldest}")]
    Compacted {
        /// The oldest revision from which a watch can start.
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
        /// The process that has it open, if known.
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
    /// etcd has reached its quota. The write left nothing behind. The message is etcd's, which etcd's guides explain.
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
