//! The activator: connections to a Service without endpoints wait here until a Pod has started.
//!
//! The rules send only connections to Services that a ScaledObject has marked, and only while there is no ready endpoint. The
//! kernel says to which address of a Service a connection was made; the rules of the proxy say which Service has that address, and
//! which Pods are behind it. A connection that waits is reported ([`report`]), so that the workload is scaled. Once there is a
//! Pod, bytes are copied between both until one of them ends. All that waits has a bound: each Service, each namespace, all
//! together, and the time. What goes beyond one gets an answer that says so. A connection that came in another way is reset.

mod answer;
mod connection;
pub(crate) mod report;
mod slots;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddrV4};
use std::sync::Arc;

use api_client::informer::ObjectKey;
use api_tasks::{ConnectionLimiter, Tasks};
use ipnet::Ipv4Net;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::Config;
use crate::rules::{Activation, Front, RuleSet};
use crate::service::Key;
pub(crate) use slots::{Limits, Slots};

/// The Services whose connections may wait, as the rules have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Activations {
    fronts: BTreeMap<Front, Activation>,
    /// The counters of new connections.
    counters: BTreeMap<String, Key>,
}

impl Activations {
    /// The part of the rules that is about connections that may wait.
    pub(crate) fn of(rules: &RuleSet) -> Self {
        Self { fronts: rules.activations.clone(), counters: rules.counters.clone() }
    }

    /// The endpoints behind a front; none if it is not this Service's.
    fn endpoints(&self, front: Front, service: &Key) -> Option<&[SocketAddrV4]> {
        self.fronts.get(&front).filter(|activation| activation.service == *service).map(|activation| activation.endpoints.as_slice())
    }
}

/// The present activations.
pub(crate) type Present = watch::Receiver<Arc<Activations>>;

/// Finds the address to which the client of a connection connected.
pub(crate) type Original = fn(&TcpStream) -> io::Result<SocketAddrV4>;

/// Accepts connections that wait.
pub(crate) struct Activator {
    listener: TcpListener,
    address: SocketAddrV4,
    original: Original,
    service_cidr: Ipv4Net,
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) present: Present,
    pub(crate) slots: Arc<Slots>,
}

impl Activator {
    /// Listens at the node's address. None, and a warning, if that is not possible: then nothing waits, and Services without
    /// endpoints are rejected.
    pub(crate) async fn listen(config: &Config) -> Option<Self> {
        let IpAddr::V4(ip) = config.node_ip else {
            tracing::warn!(node_ip = %config.node_ip, "connections do not wait for endpoints: the node has no IPv4 address");
            return None;
        };
        let listening = TcpListener::bind((ip, 0)).await.and_then(|listener| Ok((listener.local_addr()?.port(), listener)));
        match listening {
            Ok((port, listener)) => {
                let address = SocketAddrV4::new(ip, port);
                Some(Self { listener, address, original, service_cidr: config.service_cidr })
            }
            Err(error) => {
                tracing::warn!(%ip, %error, "connections do not wait for endpoints: the activator cannot listen");
                None
            }
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Serves until cancelled; all connections end then.
    pub(crate) async fn run(self, shared: Shared, cancel: CancellationToken) {
        let (open, tasks) = (ConnectionLimiter::new(shared.slots.limits.connections), Tasks::new(cancel.clone()));
        let shared = Arc::new(shared);
        loop {
            let (stream, client) = tokio::select! {
                () = cancel.cancelled() => break,
                accepted = api_tasks::accept(&self.listener) => accepted,
            };
            let (Some(slot), Some(front)) = (open.acquire(client.ip()), self.front(&stream, &shared)) else {
                answer::reset(stream);
                continue;
            };
            let (shared, cancel) = (Arc::clone(&shared), cancel.clone());
            tasks.request("service-proxy/waiting-connection", async move {
                tokio::select! {
                    () = cancel.cancelled() => {}
                    () = connection::serve(stream, front, &shared) => {}
                    () = slot.evicted() => tracing::debug!(%client, "a waiting connection made room for others"),
                }
            });
        }
        tasks.wait().await;
    }

    /// The front to which a client connected. None for a connection that no rule has sent here.
    fn front(&self, stream: &TcpStream, shared: &Shared) -> Option<Front> {
        let to = (self.original)(stream).ok()?;
        let present = shared.present.borrow();
        let front = Front { ip: Some(*to.ip()), port: to.port() };
        if present.fronts.contains_key(&front) {
            return Some(front);
        }
        let front = Front { ip: None, port: to.port() };
        (!self.service_cidr.contains(to.ip()) && present.fronts.contains_key(&front)).then_some(front)
    }
}

/// The destination of a connection before the translation.
fn original(stream: &TcpStream) -> io::Result<SocketAddrV4> {
    let address = SockRef::from(stream).original_dst_v4()?;
    address.as_socket_ipv4().ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))
}

fn object_key((namespace, name): &Key) -> ObjectKey {
    ObjectKey::new(namespace, name)
}
