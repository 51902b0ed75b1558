//! Names of the cluster, on every node: A, AAAA, SRV and PTR of Services, headless Services and Pods, and aliases for
//! ExternalName. Every other question is forwarded to the node's own resolvers.
//!
//! The input is Namespaces, Services and EndpointSlices, watched, and questions over UDP and TCP. The output is answers. The
//! names are a pure value ([`zone`]), which is read under a read lock; hickory implements the protocol. Until the first lists
//! are complete, names of the cluster get the answer SERVFAIL: clients must not cache "not yet" as "no such name". Left to
//! others: the address it listens on (node-network), and which Pods use it (the agent's `resolv.conf`s).

mod bind;
mod config;
mod error;
#[cfg(test)]
mod fixtures;
mod follow;
mod forward;
mod handler;
mod objects;
mod tcp;
mod zone;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use api_client::informer::Informers;
use futures::StreamExt as _;
use hickory_server::Server;
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use config::{Config, upstreams};
pub use error::DnsError;

use forward::Upstream;
use handler::Handler;
use zone::Zone;

/// How long an address that is in use is tried for.
const BIND_PATIENCE: Duration = Duration::from_secs(10);

/// Serves names until cancelled.
pub async fn run(informers: &Informers, config: Config, cancel: CancellationToken) -> Result<(), DnsError> {
    run_with_ready(informers, config, watch::Sender::new(false), cancel).await
}

/// As [`run`]; `ready` becomes true when names of the cluster are answered.
pub async fn run_with_ready(
    informers: &Informers,
    config: Config,
    ready: watch::Sender<bool>,
    cancel: CancellationToken,
) -> Result<(), DnsError> {
    let own: Vec<IpAddr> = config.listen.iter().map(|address| address.ip()).filter(|ip| !ip.is_unspecified()).collect();
    let zone = Zone::new(&config.domain, config.ranges.clone(), own).ok_or_else(|| DnsError::Domain(config.domain.clone()))?;
    let zone = Arc::new(RwLock::new(zone));
    let serving = serve(Arc::clone(&zone), &config, cancel.clone());
    tokio::select! {
        served = serving => served,
        () = follow::follow(informers, zone, ready) => Err(DnsError::Ended("its watches ended".to_owned())),
    }
}

/// Answers from a zone until cancelled.
async fn serve(zone: Arc<RwLock<Zone>>, config: &Config, cancel: CancellationToken) -> Result<(), DnsError> {
    let mut servers = config.upstream.clone();
    let first = Upstream::new(&servers.borrow_and_update()).map_err(|error| DnsError::Upstream(error.to_string()))?;
    let upstream = Arc::new(RwLock::new(Arc::new(first)));
    let handler = Handler::new(zone, Arc::clone(&upstream));
    let mut server = Server::new(handler.clone());
    let mut over_tcp = futures::stream::FuturesUnordered::new();
    for address in &config.listen {
        let opened = tokio::select! {
            opened = bind::open(*address, BIND_PATIENCE) => opened?,
            () = cancel.cancelled() => return Ok(()),
        };
        server.register_socket(opened.0);
        over_tcp.push(tcp::serve(opened.1, handler.clone()));
    }
    let ended = tokio::select! {
        ended = server.block_until_done() => ended.err().map_or_else(|| "its sockets closed".to_owned(), |error| error.to_string()),
        () = cancel.cancelled() => return server.shutdown_gracefully().await.map_err(|error| DnsError::Ended(error.to_string())),
        Some(never) = over_tcp.next() => match never {},
        never = follow_upstream(servers, &upstream) => match never {},
    };
    Err(DnsError::Ended(ended))
}

/// Uses new resolvers when there are some; concurrent questions end with those they began with.
async fn follow_upstream(mut servers: watch::Receiver<Vec<SocketAddr>>, upstream: &RwLock<Arc<Upstream>>) -> std::convert::Infallible {
    while servers.changed().await.is_ok() {
        let servers = servers.borrow_and_update().clone();
        match Upstream::new(&servers) {
            Ok(fresh) => {
                tracing::info!(?servers, "upstream resolvers changed");
                *upstream.write() = Arc::new(fresh);
            }
            Err(error) => tracing::warn!(?servers, %error, "upstream resolvers not taken up"),
        }
    }
    // The sender of new resolvers is gone.
    std::future::pending().await
}

#[cfg(test)]
mod tests;
