//! Why a runtime call failed. The agent turns these errors into container reasons.

use std::io;
use std::sync::Arc;

use thiserror::Error;

/// A failed runtime operation. A clone is the same error, for several callers that waited for one operation.
#[derive(Clone, Debug, Error)]
pub enum RuntimeError {
    /// No container of that id.
    #[error("container {0} not found")]
    NotFound(String),
    /// `create` for an id that exists.
    #[error("container {0} already exists")]
    Exists(String),
    /// The content does not fit the runtime, is malformed, or imports what the runtime does not provide: the image is the
    /// cause, and trying again does not help until it changes.
    #[error("{0}")]
    BadContent(String),
    /// The spec requires what this runtime does not support (processes that a WASM container would share, …).
    #[error("{0}")]
    Unsupported(String),
    /// The container whose processes the spec wants to see does not run.
    #[error("invalid target container: container \"{0}\" is not running")]
    NoTarget(String),
    /// The command or the working directory does not exist, is not executable, …; upstream's
    /// `StartError`, exit code 128.
    #[error("{0}")]
    Start(String),
    /// A kernel feature or a tool is missing; the text says what to install.
    #[error("{0}")]
    Missing(String),
    /// A tool (runc) failed.
    #[error("{tool} failed: {message}")]
    Tool {
        /// The tool's name.
        tool: &'static str,
        /// The tool's message.
        message: String,
    },
    /// An operation of the system failed.
    #[error("{doing}")]
    Io {
        /// What was attempted, and on which path.
        doing: String,
        /// The system's error.
        #[source]
        source: Arc<io::Error>,
    },
}

impl RuntimeError {
    /// For `map_err`: adds what was attempted.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source: Arc::new(source) }
    }
}
