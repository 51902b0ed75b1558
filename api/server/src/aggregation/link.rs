//! The way to each aggregated server: its TLS, and the connections that are kept to it.
//!
//! A link is of one moment. Once the server's authority, its Service, what is behind that, or the front proxy's
//! certificate is another, the link is made anew: connections that wait end with the old one, those in use with what
//! they are used for.

use std::collections::HashMap;
use std::sync::Arc;

use api_auth::Pki;
use parking_lot::Mutex;

use super::Remote;
use api_cache::Cache;
use api_upstream::pool::Server;
use api_upstream::resolve;
use api_upstream::tls::{self, TlsError};

/// To one server.
pub(super) struct Link {
    terms: Terms,
    pub(super) server: Server,
}

/// What connections are made with.
#[derive(PartialEq, Eq)]
struct Terms {
    host: String,
    port: u16,
    /// All that is behind the Service; a Pod that left it may live on and answer.
    endpoints: Option<Vec<(String, u16)>>,
    ca_bundle: Option<Vec<u8>>,
    insecure: bool,
    /// The front proxy's.
    certificate_pem: String,
}

/// One a server, by the name of its APIService.
#[derive(Default)]
pub(super) struct Links(Mutex<HashMap<String, Arc<Link>>>);

impl Links {
    /// The present link to a server.
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
        // The machine's authorities may be read for this: not under the lock.
        let tls = tls::aggregator_connector(pki, remote.ca_bundle.as_deref(), remote.insecure)?;
        let server = Server::new(cache, tls, &terms.host, terms.port);
        let link = Arc::new(Link { terms, server });
        self.0.lock().insert(remote.name.clone(), Arc::clone(&link));
        Ok(link)
    }

    /// Lets go of those to other servers than these.
    pub(super) fn retain(&self, remotes: &[Arc<Remote>]) {
        self.0.lock().retain(|name, _| remotes.iter().any(|remote| remote.name == *name));
    }
}
