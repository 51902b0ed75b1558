//! Binds sockets to addresses that may not exist yet: node-network creates the interface with the cluster DNS address
//! independently.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::sys::socket::sockopt::{IpFreebind, Ipv6V6Only, ReuseAddr};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket};
use tokio::net::{TcpListener, UdpSocket};
use tokio::time::Instant;

use crate::DnsError;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1_024;
const RETRY: Duration = Duration::from_millis(100);

/// Opens the UDP and the TCP socket of an address. An address that is in use is tried again for a while: the server of an
/// earlier process may be about to end.
pub(crate) async fn open(address: SocketAddr, patience: Duration) -> Result<(UdpSocket, TcpListener), DnsError> {
    let deadline = Instant::now() + patience;
    loop {
        match udp(address).and_then(|udp| Ok((udp, tcp(address)?))) {
            Ok(sockets) => return Ok(sockets),
            Err(source) if source.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                tokio::time::sleep(RETRY).await;
            }
            Err(source) => return Err(DnsError::Bind { address, source }),
        }
    }
}

fn bound(address: SocketAddr, kind: SockType) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let fd = socket(family, kind, SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&fd, IpFreebind, &true)?;
    if address.is_ipv6() {
        setsockopt(&fd, Ipv6V6Only, &true)?;
    }
    if kind == SockType::Stream {
        // Connections of an earlier process may still be closing. For UDP this option would let two servers share the address
        // without an error.
        setsockopt(&fd, ReuseAddr, &true)?;
    }
    bind(std::os::fd::AsRawFd::as_raw_fd(&fd), &SockaddrStorage::from(address))?;
    Ok(fd)
}

fn udp(address: SocketAddr) -> io::Result<UdpSocket> {
    UdpSocket::from_std(bound(address, SockType::Datagram)?.into())
}

fn tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let fd = bound(address, SockType::Stream)?;
    listen(&fd, Backlog::new(BACKLOG)?)?;
    TcpListener::from_std(fd.into())
}
