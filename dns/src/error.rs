//! Why names could not be served.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

/// A failed server.
#[derive(Debug, Error)]
pub enum DnsError {
    /// The cluster's domain is no domain name.
    #[error("cluster domain {0:?} is not a domain name")]
    Domain(String),
    /// An address could not be listened on, for example because another server has it.
    #[error("listening on {address} for DNS")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The resolvers cannot be used.
    #[error("setting up the upstream resolvers failed: {0}")]
    Upstream(String),
    /// The server ended by itself.
    #[error("the DNS server ended: {0}")]
    Ended(String),
}
