//! `nft`: rules and tables.

use std::collections::BTreeMap;

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

/// The packets of each named counter of a table, by the counter's name.
pub fn counters(table: &str) -> Result<BTreeMap<String, u64>, NetfilterError> {
    let output = run(NFT, &["list", "counters", "table", "ip", table], "", MISSING)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(NetfilterError::Rules(said.lines().next().unwrap_or("nft gave no reason").to_owned()));
    }
    Ok(parse_counters(&String::from_utf8_lossy(&output.stdout)))
}

fn parse_counters(text: &str) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    let mut name = None;
    for line in text.lines().map(str::trim) {
        match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["counter", next, "{"] => name = Some((*next).to_owned()),
            ["packets", packets, "bytes", _] => {
                if let (Some(name), Ok(packets)) = (name.take(), packets.parse()) {
                    counters.insert(name, packets);
                }
            }
            _ => {}
        }
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_their_names() {
        let text = "table ip sk1-proxy {\n\tcounter connections-ab-default/web/tcp/http {\n\t\tpackets 12 bytes 720\n\t}\n\
                    \tcounter connections-cd-default/api/tcp/ {\n\t\tpackets 0 bytes 0\n\t}\n}\n";
        let counters: Vec<_> = parse_counters(text).into_iter().collect();
        let wanted = [("connections-ab-default/web/tcp/http", 12), ("connections-cd-default/api/tcp/", 0)];
        assert_eq!(counters, wanted.map(|(name, packets)| (name.to_owned(), packets)));
    }
}
