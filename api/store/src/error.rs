//! Why the store refused or failed.

use std::sync::Arc;

use thiserror::Error;

use crate::Revision;

/// A failed store operation.
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    /// A write's condition does not hold.
    #[error("the key is at revision {current:?}")]
    Conflict {
        /// Where the key is; `None` when it is absent.
        current: Option<Revision>,
    },
    /// A write's guard does not hold: what it was decided on may have changed.
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
    /// A server's address cannot be meant.
    #[error("{address:?} is no address of an etcd server: {why}")]
    Address {
        /// The address.
        address: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file is not what it has to be.
    #[error("{path} {why}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// Another process has the database open.
    #[error("{path} is in use by another process (pid {pid})")]
    InUse {
        /// The database.
        path: String,
        /// Who holds it, as far as known.
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
        /// The newest schema known here.
        known: i64,
    },
    /// No room is left on the disk; nothing of the write remains.
    #[error("no space left on the disk of {path}")]
    DiskFull {
        /// The database.
        path: String,
    },
    /// etcd has reached the quota that it was given; nothing of the write remains. In etcd's words, which its guides explain.
    #[error("etcdserver: mvcc: database space exceeded")]
    SpaceExceeded,
    /// The store is closing.
    #[error("the store is closed")]
    Closed,
    /// The backend failed.
    #[error("{doing}")]
    Backend {
        /// What was being done.
        doing: String,
        /// What it said.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}
