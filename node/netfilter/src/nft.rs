//! `nft`: rules and tables.

use crate::tool::{NetfilterError, run};

const NFT: &str = "nft";
/// What to install when `nft` is missing.
const MISSING: &str = "the nft command is missing: install the package nftables";

/// Applies a script, wholly or not at all.
pub fn apply(script: &str) -> Result<(), NetfilterError> {
    let output = run(NFT, &["-f", "-"], script, MISSING)?;
    if output.status.success() {
        return Ok(());
    }
    // The first line has the position and the error; the rest quotes the script.
    let said = String::from_utf8_lossy(&output.stderr);
    Err(NetfilterError::Rules(said.lines().next().unwrap_or("nft gave no reason").to_owned()))
}

/// Whether the table exists: others may have flushed all rules.
pub fn has_table(table: &str) -> Result<bool, NetfilterError> {
    let output = run(NFT, &["list", "tables", "ip"], "", MISSING)?;
    let wanted = format!("table ip {table}");
    Ok(String::from_utf8_lossy(&output.stdout).lines().any(|line| line.trim() == wanted))
}
