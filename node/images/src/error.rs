//! Why an image could not be had. Each variant is one of the reasons that a waiting container shows.

use std::io;

use thiserror::Error;

/// A failed image operation.
#[derive(Debug, Error)]
pub enum ImageError {
    /// `InvalidImageName`
    #[error("couldn't parse image name \"{image}\": {reason}")]
    InvalidName {
        /// The name as given.
        image: String,
        /// What is wrong with it.
        reason: String,
    },
    /// `ErrImageNeverPull`
    #[error("Container image \"{image}\" is not present with pull policy of Never")]
    NeverPull {
        /// The name as given.
        image: String,
    },
    /// `ErrImagePull`: unreachable, unauthorized, not found, or a broken answer.
    #[error("failed to pull image \"{image}\": {reason}")]
    Pull {
        /// The name as given.
        image: String,
        /// What the registry or the network said.
        reason: String,
    },
    /// The image is neither WASM nor Linux for this machine, or is malformed. Trying again does not help.
    #[error("image \"{image}\" cannot run here: {reason}")]
    NotRunnable {
        /// The name as given.
        image: String,
        /// Why.
        reason: String,
    },
    /// A layer is malformed, or asks for more than it may: unpacking it again ends the same.
    #[error("{doing}: {reason}")]
    Refused {
        /// What was being done.
        doing: String,
        /// Which limit was met, or what is wrong.
        reason: String,
    },
    /// No image of that name is in the store.
    #[error("no such image: {image}")]
    Unknown {
        /// The name as given.
        image: String,
    },
    /// The disk is full, or would be fuller than it may be; what was half-written is removed.
    #[error("no space left on the device while {doing}")]
    DiskFull {
        /// What was being done.
        doing: String,
    },
    /// An operation of the system failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done, and on which path.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
}

impl ImageError {
    /// For `map_err`: says what was being done.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { doing },
            _ => Self::Io { doing, source },
        }
    }
}

/// An error with its causes: "connection refused" lies three levels down. What a cause repeats is left out.
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
