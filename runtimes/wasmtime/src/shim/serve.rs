//! Serves a `wasi:http` component: HTTP on its ports, a fresh instance for each request. It accepts connections on the first
//! thread; [`Workers`](super::workers::Workers) says where they are served. The number of concurrent
//! connections and instances has a limit; requests beyond it get an answer that asks to retry. SIGTERM lets the
//! clients leave, closes the ports, waits for the requests in progress, and ends the shim.

use std::convert::Infallible;
use std::net::TcpListener as StdListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use runtimes_contract::{ContainerSpec, Exit};
use runtimes_shim::requests::RequestCounters;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use wasmtime::Engine;
use wasmtime::component::Component;

use super::guest::{Guest, exit, failed};
use super::handler::Linked;
use super::http::{CONNECTIONS_MAX, Server};
use super::listeners::{self, Listeners};
use super::{Failure, connection, signals};
use crate::kind::{Abi, Kind};

/// Additional connections, for probes and for answers that ask to retry; connections beyond wait in the kernel's queue.
const CONNECTIONS_SPARE: usize = 64;
/// The pause after an error of `accept` that would come again at once (no descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The open ports of a container, and the counters of the requests that come in there.
pub struct Endpoint {
    listeners: Vec<StdListener>,
    requests: RequestCounters,
}

/// The counters of requests in the container's directory.
pub fn counters(dir: &Path) -> Result<RequestCounters, Failure> {
    RequestCounters::create(dir).map_err(Failure::io("making the counters of requests"))
}

impl Endpoint {
    /// Opens the declared ports in the present network namespace.
    pub fn open(spec: &ContainerSpec, requests: RequestCounters) -> Result<Self, Failure> {
        Ok(Self { listeners: listeners::open(&spec.ports)?, requests })
    }
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
pub async fn component(engine: &Engine, component: &Component, (kind, abi): (Kind, Abi), guest: Arc<Guest>, endpoint: Endpoint) -> Exit {
    let Endpoint { listeners, requests } = endpoint;
    let linked = Linked::new(engine, component, (kind, abi), guest.keyvalue());
    let (linked, mut listeners) = match (linked, Listeners::new(listeners)) {
        (Ok(linked), Ok(listeners)) => (linked, listeners),
        (Err(error), _) => return failed(&guest, &format!("{error:?}")),
        (_, Err(error)) => return failed(&guest, &format!("listening: {error}")),
    };
    let server = Arc::new(Server::new(engine, linked, guest.clone(), requests));
    let mut connections = Connections::new(server.clone());
    let signalled = tokio::select! {
        signalled = signals::stopped() => signalled,
        never = connections.accept(&mut listeners) => match never {},
    };
    // Nodes send requests here until they have seen that the Pod ends.
    connections.phase.send_replace(Phase::Leaving);
    tokio::select! {
        () = server.until_left() => {}
        never = connections.accept(&mut listeners) => match never {},
    }
    connections.close(listeners).await;
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

    async fn accept(&mut self, listeners: &mut Listeners) -> Infallible {
        loop {
            while self.open.try_join_next().is_some() {}
            // The semaphore is never closed, so there is always a permit in the end.
            let reserve = self.spare.clone().acquire_owned().await.ok();
            match listeners.accept().await {
                Ok(stream) => self.begin(stream, reserve),
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    /// Takes the connections that the kernel has accepted, closes the ports, and waits for the requests in progress.
    async fn close(mut self, listeners: Listeners) {
        for stream in listeners.close() {
            if let Ok(reserve) = self.spare.clone().try_acquire_owned() {
                self.begin(stream, Some(reserve));
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
