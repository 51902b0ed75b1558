//! Serves a `wasi:http/proxy` component: HTTP on one port, a fresh instance for each request. It accepts connections on the first
//! thread; [`Workers`](super::workers::Workers) says where they are served. The number of concurrent
//! connections and instances has a limit; requests beyond it get an answer that asks to retry. SIGTERM lets the
//! clients leave, closes the port, waits for the requests in progress, and ends the shim.

use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdListener};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt};
use runtimes_contract::{ContainerSpec, Exit};
use runtimes_shim::launch::Refusal;
use runtimes_shim::requests::RequestCounters;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use wasmtime::Engine;
use wasmtime::component::Component;
use wasmtime_wasi_http::p2::bindings::ProxyPre;

use super::guest::{Guest, exit, failed};
use super::http::{CONNECTIONS_MAX, Server};
use super::{Failure, connection, signals};
use crate::host::component_linker;

/// Served when the container declares no port.
const PORT_DEFAULT: u16 = 8080;
/// Additional connections, for probes and for answers that ask to retry; connections beyond wait in the kernel's queue.
const CONNECTIONS_SPARE: usize = 64;
/// The connections that wait in the kernel's queue.
const BACKLOG: i32 = 1024;
/// The pause after an error of `accept` that would come again at once (no descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The open port of a container, and the counters of the requests that come in there.
pub struct Endpoint {
    listener: StdListener,
    requests: RequestCounters,
}

impl Endpoint {
    /// Opens the first declared port in the present network namespace, and the counters in the container's directory.
    pub fn open(spec: &ContainerSpec, dir: &Path) -> Result<Self, Failure> {
        let requests = RequestCounters::create(dir).map_err(Failure::io("making the counters of requests"))?;
        Ok(Self { listener: listen(spec.ports.first().copied().unwrap_or(PORT_DEFAULT))?, requests })
    }
}

/// Opens the port for IPv6 and IPv4, or for IPv4 alone where there is no IPv6.
fn listen(port: u16) -> Result<StdListener, Failure> {
    let both = listen_on(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    let socket = match both {
        Err(nix::errno::Errno::EAFNOSUPPORT | nix::errno::Errno::EADDRNOTAVAIL) => {
            listen_on(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
        }
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

/// How far the end of a server has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It has not begun.
    Serving,
    /// Clients that are connected shall leave, and those that still connect are answered.
    Leaving,
    /// Connections end with the request that they are in.
    Closing,
}

/// Serves until a signal stops us.
pub async fn component(engine: &Engine, component: &Component, guest: Arc<Guest>, endpoint: Endpoint) -> Exit {
    let Endpoint { listener, requests } = endpoint;
    let proxy = component_linker(engine).and_then(|linker| linker.instantiate_pre(component)).and_then(ProxyPre::new);
    let (proxy, listener) = match (proxy, TcpListener::from_std(listener)) {
        (Ok(proxy), Ok(listener)) => (proxy, listener),
        (Err(error), _) => return failed(&guest, &format!("{error:?}")),
        (_, Err(error)) => return failed(&guest, &format!("listening: {error}")),
    };
    let server = Arc::new(Server::new(engine, proxy, guest.clone(), requests));
    let mut connections = Connections::new(server.clone());
    let signalled = tokio::select! {
        signalled = signals::stopped() => signalled,
        never = connections.accept(&listener) => match never {},
    };
    // Nodes send requests here until they have seen that the Pod ends.
    connections.phase.send_replace(Phase::Leaving);
    tokio::select! {
        () = server.until_left() => {}
        never = connections.accept(&listener) => match never {},
    }
    connections.close(listener).await;
    match signalled {
        Ok(_) => exit(0, None, String::new()),
        Err(error) => failed(&guest, &format!("waiting for signals: {error}")),
    }
}

/// The connections of a server.
struct Connections {
    server: Arc<Server>,
    phase: watch::Sender<Phase>,
    room: Arc<Semaphore>,
    spare: Arc<Semaphore>,
    open: JoinSet<()>,
}

impl Connections {
    fn new(server: Arc<Server>) -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        let (phase, _) = watch::channel(Phase::Serving);
        Self { server, phase, room: semaphore(CONNECTIONS_MAX), spare: semaphore(CONNECTIONS_SPARE), open: JoinSet::new() }
    }

    async fn accept(&mut self, listener: &TcpListener) -> Infallible {
        loop {
            while self.open.try_join_next().is_some() {}
            // The semaphore is never closed, so there is always a permit in the end.
            let reserve = self.spare.clone().acquire_owned().await.ok();
            match listener.accept().await {
                Ok((stream, _)) => self.begin(stream, reserve),
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    /// Takes the connections that the kernel has accepted, closes the port, and waits for the requests in progress.
    async fn close(mut self, listener: TcpListener) {
        if let Ok(listener) = listener.into_std() {
            while let Ok((stream, _)) = listener.accept() {
                if let (Ok(()), Ok(reserve)) = (stream.set_nonblocking(true), self.spare.clone().try_acquire_owned())
                    && let Ok(stream) = TcpStream::from_std(stream)
                {
                    self.begin(stream, Some(reserve));
                }
            }
        }
        self.phase.send_replace(Phase::Closing);
        while self.open.join_next().await.is_some() {}
    }

    /// Serves a connection on this thread, or on the further threads when they have started.
    fn begin(&mut self, stream: TcpStream, reserve: Option<OwnedSemaphorePermit>) {
        let (permit, is_spare) = match self.room.clone().try_acquire_owned() {
            Ok(permit) => (Some(permit), false),
            Err(_) => (reserve, true),
        };
        let (server, phase) = (self.server.clone(), self.phase.subscribe());
        let serving = move |stream| async move {
            connection::serve(stream, server, phase, is_spare).await;
            drop(permit);
        };
        let Some(others) = self.server.workers().of_connections() else {
            self.open.spawn(serving(stream));
            return;
        };
        // The event loop that the socket belongs to wakes the thread that serves it. A socket that cannot change it is closed.
        if let Ok(stream) = stream.into_std() {
            let moved = async move {
                if let Ok(stream) = TcpStream::from_std(stream) {
                    serving(stream).await;
                }
            };
            self.open.spawn_on(moved, &others);
        }
    }
}
