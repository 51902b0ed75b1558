//! The two tools that speak to the kernel: `nft`, one transaction a call, and `conntrack`, which
//! forgets flows. Rules are written in nft's own language, which is what a person would read and
//! what snapshots show; its JSON form cannot say everything in the versions that Debian ships.

use std::io;
use std::process::{Output, Stdio};

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::ProxyError;
use crate::flows::Stale;

const NFT: &str = "nft";
const CONNTRACK: &str = "conntrack";
const NFT_MISSING: &str = "the nft command is missing: install the package nftables";

async fn run(tool: &'static str, arguments: &[&str], input: &str) -> Result<Output, io::Error> {
    let mut child = Command::new(tool)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A tool that has seen enough may close its end; its exit code says how it went.
        match stdin.write_all(input.as_bytes()).await {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
            _ => {}
        }
    }
    child.wait_with_output().await
}

fn nft_failed(source: io::Error) -> ProxyError {
    if source.kind() == io::ErrorKind::NotFound { ProxyError::Missing(NFT_MISSING) } else { ProxyError::Tool { tool: NFT, source } }
}

/// Applies a script, wholly or not at all.
pub(crate) async fn nft(script: &str) -> Result<(), ProxyError> {
    let output = run(NFT, &["-f", "-"], script).await.map_err(nft_failed)?;
    if output.status.success() {
        return Ok(());
    }
    // The first line names the place and the error; what follows quotes the script.
    let said = String::from_utf8_lossy(&output.stderr);
    Err(ProxyError::Rules(said.lines().next().unwrap_or("nft gave no reason").to_owned()))
}

/// Whether the table is still there: others may have flushed all rules.
pub(crate) async fn has_table(table: &str) -> Result<bool, ProxyError> {
    let output = run(NFT, &["list", "tables", "ip"], "").await.map_err(nft_failed)?;
    let wanted = format!("table ip {table}");
    Ok(String::from_utf8_lossy(&output.stdout).lines().any(|line| line.trim() == wanted))
}

/// Makes the kernel forget flows to endpoints that are gone, so that the next datagram is
/// translated anew.
pub(crate) async fn forget(stale: &Stale) -> Result<(), ProxyError> {
    let port = stale.front.port.to_string();
    let mut arguments = vec!["-D", "-p", "udp", "--orig-port-dst", &port];
    let ip = stale.front.ip.map(|ip| ip.to_string());
    let endpoint = stale.endpoint.map(|endpoint| (endpoint.ip().to_string(), endpoint.port().to_string()));
    if let Some(ip) = &ip {
        arguments.extend(["--orig-dst", ip]);
    }
    if let Some((ip, port)) = &endpoint {
        arguments.extend(["--reply-src", ip, "--reply-port-src", port]);
    }
    // It fails where no flow matches: that is well.
    match run(CONNTRACK, &arguments, "").await {
        Ok(_) => Ok(()),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Err(ProxyError::Missing(
            "the conntrack command is missing, and UDP clients may keep speaking to endpoints that are gone: install the package conntrack",
        )),
        Err(source) => Err(ProxyError::Tool { tool: CONNTRACK, source }),
    }
}
