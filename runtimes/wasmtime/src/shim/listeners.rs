//! The open ports of a `wasi:http` server: one listener a port, and connections of all of them in turn.

use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdListener};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::task::Poll;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt};
use runtimes_shim::launch::Refusal;
use tokio::net::{TcpListener, TcpStream};

use super::Failure;

/// Served when the container declares no port.
const PORT_DEFAULT: u16 = 8080;
/// The highest number of ports. Each has a queue of [`BACKLOG`] connections in the kernel.
const PORTS_MAX: usize = 64;
/// The connections that wait in the kernel's queue of a port.
const BACKLOG: i32 = 1024;

/// Opens the declared ports in the present network namespace.
pub fn open(declared: &[u16]) -> Result<Vec<StdListener>, Failure> {
    // One port may be declared by several names.
    let mut ports: BTreeSet<u16> = declared.iter().copied().collect();
    if ports.is_empty() {
        ports.insert(PORT_DEFAULT);
    }
    if ports.len() > PORTS_MAX {
        let message = format!("the container declares {} TCP ports, and a wasi:http server has {PORTS_MAX} at most", ports.len());
        return Err(Failure::new(Refusal::Start, message));
    }
    ports.into_iter().map(listen).collect()
}

/// Opens the port for IPv6 and IPv4, or for IPv4 alone where there is no IPv6.
fn listen(port: u16) -> Result<StdListener, Failure> {
    let both = listen_on(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    let socket = match both {
        Err(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL) => listen_on(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))),
        other => other,
    };
    socket
        .map(StdListener::from)
        .map_err(|error| Failure::new(Refusal::Start, format!("listen tcp :{port}: bind: {}", error.desc().to_lowercase())))
}

fn listen_on(address: SocketAddr) -> nix::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let fd = socket(family, SockType::Stream, SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    if address.is_ipv6() {
        setsockopt(&fd, sockopt::Ipv6V6Only, &false)?;
    }
    bind(fd.as_fd().as_raw_fd(), &SockaddrStorage::from(address))?;
    nix::sys::socket::listen(&fd, Backlog::new(BACKLOG)?)?;
    Ok(fd)
}

/// The listeners of a server that runs.
pub struct Listeners {
    open: Vec<TcpListener>,
    /// The position of the one that is asked first, so that a busy port does not keep out another.
    first: usize,
}

impl Listeners {
    /// Takes the listeners into the present event loop.
    pub fn new(listeners: Vec<StdListener>) -> io::Result<Self> {
        let open = listeners.into_iter().map(TcpListener::from_std).collect::<io::Result<_>>()?;
        Ok(Self { open, first: 0 })
    }

    /// The next connection of any port. Cancel-safe.
    pub async fn accept(&mut self) -> io::Result<TcpStream> {
        let (before, after) = self.open.split_at(self.first);
        let (position, accepted) = poll_fn(|context| {
            for (position, listener) in (self.first..).zip(after).chain((0..).zip(before)) {
                if let Poll::Ready(accepted) = listener.poll_accept(context) {
                    return Poll::Ready((position, accepted));
                }
            }
            Poll::Pending
        })
        .await;
        self.first = if position + 1 < self.open.len() { position + 1 } else { 0 };
        accepted.map(|(stream, _)| stream)
    }

    /// Closes the ports; returns the connections that the kernel has accepted, of each port in turn.
    pub fn close(self) -> impl Iterator<Item = TcpStream> {
        let mut waiting: VecDeque<StdListener> = self.open.into_iter().filter_map(|listener| listener.into_std().ok()).collect();
        std::iter::from_fn(move || {
            while let Some(listener) = waiting.pop_front() {
                if let Ok((stream, _)) = listener.accept() {
                    waiting.push_back(listener);
                    return Some(stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream)).ok());
                }
            }
            None
        })
        .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Listeners on two ports.
    fn two_ports() -> io::Result<(Listeners, [u16; 2])> {
        let [first, second] = [(); 2].map(|()| listen_on(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))));
        let listeners = [StdListener::from(first?), StdListener::from(second?)];
        let [first, second] = listeners.each_ref().map(StdListener::local_addr);
        let ports = [first?.port(), second?.port()];
        Ok((Listeners::new(listeners.into())?, ports))
    }

    fn connect(port: u16) -> io::Result<std::net::TcpStream> {
        std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port))
    }

    #[tokio::test]
    async fn ports_take_turns_and_both_are_drained() -> io::Result<()> {
        let (mut listeners, [first, second]) = two_ports()?;
        let _clients: Vec<_> = [first, first, first, second, second, second].into_iter().map(connect).collect::<io::Result<_>>()?;
        for wanted in [first, second, first, second] {
            assert_eq!(listeners.accept().await?.local_addr()?.port(), wanted);
        }
        let drained: Vec<SocketAddr> = listeners.close().map(|stream| stream.local_addr()).collect::<io::Result<_>>()?;
        assert_eq!(drained.iter().map(SocketAddr::port).collect::<Vec<_>>(), [first, second]);
        Ok(())
    }

    #[tokio::test]
    async fn every_port_wakes_who_waits() -> io::Result<()> {
        let (mut listeners, [first, second]) = two_ports()?;
        for wanted in [second, first] {
            let later = async {
                tokio::task::yield_now().await;
                connect(wanted)
            };
            let (accepted, client) = tokio::join!(listeners.accept(), later);
            let _client = client?;
            assert_eq!(accepted?.local_addr()?.port(), wanted);
        }
        Ok(())
    }
}
