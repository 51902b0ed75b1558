//! Why a volume could not be set up. `kubectl describe` shows the text after upstream's
//! `MountVolume.SetUp failed for volume "x" : `.

use std::io;
use std::path::{Path, PathBuf};

use runtimes_host::Interrupted;
use thiserror::Error;

use crate::source::SourceError;

/// A failed volume operation.
#[derive(Debug, Error)]
pub enum VolumeError {
    /// An object that the volume shows is missing or could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A volume kind that this node does not have.
    #[error("no volume plugin matched name: {0}")]
    Unsupported(String),
    /// A key that an `items` list names is not in the object; upstream's words.
    #[error("references non-existent {what} key: {key}")]
    NoSuchKey {
        /// `config` or `secret`.
        what: &'static str,
        /// The key.
        key: String,
    },
    /// A path in an `items` list leaves the volume.
    #[error("invalid path {0:?}: must be relative and not contain '..'")]
    BadPath(String),
    /// A `fieldRef` or `resourceFieldRef` that has no value.
    #[error("{0}")]
    BadField(String),
    /// A hostPath of another type than the requested one; upstream's words.
    #[error("hostPath type check failed: {} is not a {wanted}", .path.display())]
    HostPathType {
        /// The path.
        path: PathBuf,
        /// The requested type: `directory`, `file`, `socket file`, …
        wanted: &'static str,
    },
    /// A mount of a volume that the Pod does not have.
    #[error("container {container:?} mounts volume {volume:?}, which the Pod does not have")]
    NoSuchVolume {
        /// The volume.
        volume: String,
        /// The container.
        container: String,
    },
    /// A subPath that leaves its volume, through `..` or a symbolic link.
    #[error("failed to prepare subPath for volumeMount: {0:?} is outside of the volume")]
    Escapes(PathBuf),
    /// A `subPathExpr` names a variable that the container does not have.
    #[error("failed to expand subPath for volumeMount: missing value for {0:?}")]
    UnknownVariable(String),
    /// The system returned an error.
    #[error("{doing} {}: {source}", .path.display())]
    Io {
        /// What was attempted.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Something is mounted below a directory that was to be removed.
    #[error("{} is still mounted", .0.display())]
    StillMounted(PathBuf),
    /// No Pod UID.
    #[error("{0:?} is not a Pod UID")]
    NotAUid(String),
    /// The process is ending.
    #[error("interrupted")]
    Interrupted,
    /// The failure of one volume; upstream's words.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {source}")]
    Volume {
        /// The volume.
        volume: String,
        /// The failure.
        source: Box<VolumeError>,
    },
}

impl VolumeError {
    /// For `map_err`: adds what was attempted on which path.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source }
    }

    pub(crate) fn in_volume(self, volume: &str) -> Self {
        Self::Volume { volume: volume.to_owned(), source: Box::new(self) }
    }
}

impl From<Interrupted> for VolumeError {
    fn from(_: Interrupted) -> Self {
        Self::Interrupted
    }
}
