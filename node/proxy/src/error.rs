//! Why Services could not be programmed.

use std::io;

use node_netfilter::NetfilterError;
use thiserror::Error;

/// A failed operation of the proxy.
#[derive(Debug, Error)]
pub enum ProxyError {
    /// A tool is missing; the text says what to install.
    #[error("{0}")]
    Missing(&'static str),
    /// The kernel or `nft` rejected the rules.
    #[error("writing nftables rules failed: {0}")]
    Rules(String),
    /// A background task failed.
    #[error(transparent)]
    Task(#[from] api_tasks::TaskFailure),
    /// The machine's addresses or listeners could not be read.
    #[error("reading the machine's addresses and sockets")]
    Machine(#[source] io::Error),
    /// A tool could not be run.
    #[error("running {tool}")]
    Tool {
        /// The tool.
        tool: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl From<NetfilterError> for ProxyError {
    fn from(error: NetfilterError) -> Self {
        match error {
            NetfilterError::Missing(text) => Self::Missing(text),
            NetfilterError::Rules(said) => Self::Rules(said),
            NetfilterError::Tool { tool, source } => Self::Tool { tool, source },
        }
    }
}
