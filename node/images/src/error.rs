//! Why an image is not available. Each variant is one of the reasons of a waiting container.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A failed image operation.
#[derive(Debug, Error)]
pub enum ImageError {
    /// `InvalidImageName`
    #[error("couldn't parse image name \"{image}\": {reason}")]
    InvalidName {
        /// The name in the spec.
        image: String,
        /// What is wrong with it.
        reason: String,
    },
    /// `ErrImageNeverPull`
    #[error("Container image \"{image}\" is not present with pull policy of Never")]
    NeverPull {
        /// The name in the spec.
        image: String,
    },
    /// `ErrImagePull`: unreachable, unauthorized, not found, or a broken answer.
    #[error("failed to pull image \"{image}\": {reason}")]
    Pull {
        /// The name in the spec.
        image: String,
        /// The error of the registry or the network.
        reason: String,
    },
    /// The image is neither WASM nor Linux for this machine, or is malformed. Trying again does not help.
    #[error("image \"{image}\" cannot run here: {reason}")]
    NotRunnable {
        /// The name in the spec.
        image: String,
        /// Why.
        reason: String,
    },
    /// A layer is malformed, or exceeds a limit: unpacking it again has the same result.
    #[error("{doing}: {reason}")]
    Refused {
        /// What was attempted.
        doing: String,
        /// The limit that was reached, or what is wrong.
        reason: String,
    },
    /// No image of that name is in the store.
    #[error("no such image: {image}")]
    Unknown {
        /// The name in the spec.
        image: String,
    },
    /// The file system of the images says that it has no blocks; upstream's words.
    #[error("invalid capacity 0 on image filesystem")]
    NoCapacity,
    /// The disk is full, or would be fuller than allowed; incomplete files were removed.
    #[error("no space left on the device while {doing}{}", advice(.store.as_deref()))]
    DiskFull {
        /// What was attempted.
        doing: String,
        /// The directory of the store that has no room for an image; `None` for all but pulls and imports.
        store: Option<PathBuf>,
    },
    /// An operation of the system failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was attempted, and on which path.
        doing: String,
        /// The system's error.
        source: io::Error,
    },
}

impl ImageError {
    /// For `map_err`: adds what was attempted.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::disk_full(doing),
            _ => Self::Io { doing, source },
        }
    }

    /// The disk has no room for what was attempted.
    pub(crate) fn disk_full(doing: impl Into<String>) -> Self {
        Self::DiskFull { doing: doing.into(), store: None }
    }

    /// Adds the directory of the store to an error of a full disk.
    pub(crate) fn in_store(self, dir: &Path) -> Self {
        match self {
            Self::DiskFull { doing, .. } => Self::DiskFull { doing, store: Some(dir.to_owned()) },
            other => other,
        }
    }
}

/// What to do about a full disk.
fn advice(store: Option<&Path>) -> String {
    store.map_or_else(String::new, |dir| format!("; free space on the disk of {}", dir.display()))
}

/// An error with its causes: "connection refused" is three levels down. Text that a cause repeats is left out.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
