//! Handing rules to the kernel: `nft -f -`, one transaction a call. Rules are written in nft's own
//! language, which is what a person would read and what snapshots show; its JSON form cannot say
//! everything in the versions that Debian and Ubuntu ship.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use crate::NetworkError;

/// What to install when there is no `nft`.
const INSTALL: &str = "the nft command is missing: install the package nftables";

/// Applies a script in the calling thread's network namespace, wholly or not at all. Blocks.
pub(crate) fn apply(script: &str) -> Result<(), NetworkError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => NetworkError::Missing(INSTALL.to_owned()),
        _ => NetworkError::Rules(error.to_string()),
    };
    let mut child =
        Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(script.as_bytes()));
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return written.map_err(failed);
    }
    // The first line names the place and the error; what follows quotes the script.
    let said = String::from_utf8_lossy(&output.stderr);
    Err(NetworkError::Rules(said.lines().next().unwrap_or("nft gave no reason").to_owned()))
}
