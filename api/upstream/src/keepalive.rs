//! Socket options by which the kernel detects a dead peer.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// The first probe of a silent peer, the interval of further probes, and the number of lost probes that end the
/// connection.
const PROBE_AFTER: Duration = Duration::from_secs(30);
const PROBE_EVERY: Duration = Duration::from_secs(15);
const PROBES: u32 = 3;

/// Makes the kernel probe a silent peer.
pub fn probe(stream: &TcpStream) -> std::io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_EVERY).with_retries(PROBES);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// Makes the kernel end the connection when the peer does not acknowledge or accept data for `limit`. A peer that does
/// not read counts as dead.
pub fn give_up_after(stream: &TcpStream, limit: Duration) -> std::io::Result<()> {
    SockRef::from(stream).set_tcp_user_timeout(Some(limit))
}
