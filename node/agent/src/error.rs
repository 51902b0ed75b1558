//! Why the agent cannot go on, and how errors become text for people.

use std::path::PathBuf;

pub(crate) use api_client::error::chain;
use thiserror::Error;

/// What ends the agent, or keeps it from starting.
#[derive(Debug, Error)]
pub enum AgentError {
    /// A runtime lacks something of the machine; the text says what to install.
    #[error("runtime {handler}: {message}")]
    Runtime {
        /// Its handler.
        handler: &'static str,
        /// What is missing.
        message: String,
    },
    /// The machine's cgroups cannot be used; the text says what is missing.
    #[error("cgroups: {0}")]
    Cgroups(String),
    /// A file or directory of the node.
    #[error("{doing} {}", .path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The directory of what belongs to one boot is another node's.
    #[error("{} holds containers of the node of {owner}; give this node another --run-dir", .path.display())]
    RunDirTaken {
        /// The directory.
        path: PathBuf,
        /// The other node's data directory.
        owner: String,
    },
    /// The server's port cannot be had.
    #[error("listening on {address}")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The serving certificate or key cannot be used.
    #[error("the node server's certificate cannot be used: {0}")]
    Certificate(String),
    /// A part of the node could not be cleaned.
    #[error("removing what the node left: {0}")]
    Remove(String),
    /// A background task failed: the node is not looked after any more.
    #[error(transparent)]
    Task(#[from] api_tasks::TaskFailure),
}
