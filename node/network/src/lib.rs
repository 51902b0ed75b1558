//! Pod namespaces, addresses, bridge, host ports, routes between nodes.

mod config;
mod error;

pub use config::{Config, HostPort, Peer, PodNetwork, Protocol};
pub use error::NetworkError;
use ipnet::Ipv4Net;

/// The node's network.
pub struct Network {
    config: Config,
}

impl Network {
    /// Checks what is needed of the machine; changes nothing yet.
    pub async fn new(config: Config) -> Result<Self, NetworkError> {
        config.validate()?;
        Ok(Self { config })
    }

    /// Gives the node its range of Pod addresses: bridge, routes, rules. Idempotent.
    pub async fn set_pod_cidr(&self, _pod_cidr: Ipv4Net) -> Result<(), NetworkError> {
        Err(NetworkError::NoPodCidr)
    }

    /// Makes, or finds again, a Pod's namespaces and address. Idempotent by `uid`.
    pub async fn add_pod(&self, _uid: &str, _hostname: &str, _host_ports: &[HostPort]) -> Result<PodNetwork, NetworkError> {
        Err(NetworkError::NoPodCidr)
    }

    /// Frees everything of a Pod; of one that is not there, nothing.
    pub async fn remove_pod(&self, _uid: &str) -> Result<(), NetworkError> {
        Err(NetworkError::NoPodCidr)
    }

    /// UIDs of all Pods that have anything here, half-made ones too.
    pub async fn pods(&self) -> Result<Vec<String>, NetworkError> {
        Err(NetworkError::NoPodCidr)
    }

    /// Replaces the whole set of routes to other nodes' Pods.
    pub async fn set_routes(&self, _peers: &[Peer]) -> Result<(), NetworkError> {
        Err(NetworkError::NoPodCidr)
    }

    /// Removes every trace: Pods, interfaces, routes, rules, state. Safe to repeat.
    pub async fn remove_all(&self) -> Result<(), NetworkError> {
        Err(NetworkError::Invalid(self.config.bridge()))
    }
}
