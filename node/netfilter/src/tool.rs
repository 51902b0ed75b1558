//! Runs `nft` and `conntrack`.

use std::io::{self, Write as _};
use std::process::{Command, Output, Stdio};

use thiserror::Error;

/// Why the packet filter could not be changed.
#[derive(Debug, Error)]
pub enum NetfilterError {
    /// A tool is missing; the text says what to install.
    #[error("{0}")]
    Missing(&'static str),
    /// The kernel or `nft` rejected the rules; the text is nft's first line.
    #[error("writing nftables rules failed: {0}")]
    Rules(String),
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

/// Runs a tool with this input until it ends. `missing` is the message when the tool is not installed.
pub(crate) fn run(tool: &'static str, arguments: &[&str], input: &str, missing: &'static str) -> Result<Output, NetfilterError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => NetfilterError::Missing(missing),
        _ => NetfilterError::Tool { tool, source },
    };
    let mut command = Command::new(tool);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(failed)?;
    match written {
        // A tool may close its input before it has read everything; its exit code tells whether it succeeded.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(failed(error)),
        _ => Ok(output),
    }
}
