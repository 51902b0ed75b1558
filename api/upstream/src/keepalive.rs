//! The kernel notices a peer that is gone.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// A silent peer is probed after this long, this often, so many times.
const PROBE_AFTER: Duration = Duration::from_secs(30);
const PROBE_EVERY: Duration = Duration::from_secs(15);
const PROBES: u32 = 3;

/// Has the system notice when a silent peer is gone.
pub fn probe(stream: &TcpStream) -> std::io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_EVERY).with_retries(PROBES);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// Has the system end the connection once data is not acknowledged for this long, or not taken in: a peer that does
/// not read counts as gone.
pub fn give_up_after(stream: &TcpStream, limit: Duration) -> std::io::Result<()> {
    SockRef::from(stream).set_tcp_user_timeout(Some(limit))
}
