//! The link to each aggregated server: its TLS configuration, and the pool of connections.
//!
//! A link is valid for its terms: the server's authority, its Service, the endpoints behind that, and the front proxy's
//! certificate. When one of them changes, a new link replaces the old one. Idle connections end with the old link; a
//! connection in use ends with its request.

use std::collections::HashMap;
use std::sync::Arc;

use api_auth::Pki;
use parking_lot::Mutex;

use super::Remote;
use api_cache::Cache;
use api_upstream::pool::Server;
use api_upstream::resolve;
use api_upstream::tls::{self, TlsError};

/// The link to one server.
pub(super) struct Link {
    terms: Terms,
    pub(super) server: Server,
}

/// The values that connections depend on.
#[derive(PartialEq, Eq)]
struct Terms {
    host: String,
    port: u16,
    /// All endpoints of the Service. A Pod that has left the Service may still run and answer.
    endpoints: Option<Vec<(String, u16)>>,
    ca_bundle: Option<Vec<u8>>,
    insecure: bool,
    /// The front proxy's certificate.
    certificate_pem: String,
}

/// One link for each server, by the name of its APIService.
#[derive(Default)]
pub(super) struct Links(Mutex<HashMap<String, Arc<Link>>>);

impl Links {
    /// The link to a server for its present terms.
    pub(super) fn to(&self, remote: &Remote, pki: &Pki, cache: &Arc<Cache>) -> Result<Arc<Link>, TlsError> {
        let host = remote.host();
        let terms = Terms {
            endpoints: resolve::endpoints(&**cache, &host, remote.port),
            host,
            port: remote.port,
            ca_bundle: remote.ca_bundle.clone(),
            insecure: remote.insecure,
            certificate_pem: pki.front_proxy_client().certificate_pem.clone(),
        };
        if let Some(link) = self.0.lock().get(&remote.name).filter(|link| link.terms == terms) {
            return Ok(Arc::clone(link));
        }
        // This may read the machine's authorities from disk, so it must not hold the lock.
        let tls = tls::aggregator_connector(pki, remote.ca_bundle.as_deref(), remote.insecure)?;
        let server = Server::new(cache, tls, &terms.host, terms.port);
        let link = Arc::new(Link { terms, server });
        self.0.lock().insert(remote.name.clone(), Arc::clone(&link));
        Ok(link)
    }

    /// Removes the links to all other servers.
    pub(super) fn retain(&self, remotes: &[Arc<Remote>]) {
        self.0.lock().retain(|name, _| remotes.iter().any(|remote| remote.name == *name));
    }
}
