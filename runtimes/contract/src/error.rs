//! Why a runtime could not do what was asked. The agent turns these into container reasons.

use std::io;

use thiserror::Error;

/// A failed runtime operation.
#[derive(Debug, Error)]
pub enum RuntimeError {
    /// No container of that id.
    #[error("container {0} not found")]
    NotFound(String),
    /// `create` for an id that is there.
    #[error("container {0} already exists")]
    Exists(String),
    /// The content does not fit the runtime, is malformed, or imports what is not offered: the
    /// image is at fault, trying again does not help until it changes.
    #[error("{0}")]
    BadContent(String),
    /// The spec asks for what this runtime cannot do (exec in a WASM container, …).
    #[error("{0}")]
    Unsupported(String),
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
        /// What it said.
        message: String,
    },
    /// An operation of the system failed.
    #[error("{doing}")]
    Io {
        /// What was being done, and on which path.
        doing: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl RuntimeError {
    /// For `map_err`: says what was being done.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}
