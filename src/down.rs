//! `skiff down`: removes every trace of a node. It needs no API server and no agent, and may run again.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use async_trait::async_trait;
use ipnet::Ipv4Net;
use node_agent::{Agent, Networks, Parts};
use node_images::ImageStore;
use node_network::{HostPort, NetworkError, Peer, PodNetwork};

use crate::cli::Down;
use crate::{internal, node};

/// Removes containers, namespaces, cgroups, mounts and rules. Data stays.
pub async fn run(options: Down) -> anyhow::Result<()> {
    let data_dir = &options.data_dir.open()?;
    let _lock = data_dir.lock("node")?;
    let run_dir = options.run_dir.open(data_dir)?;
    let network = Remains { prefix: data_dir.prefix.clone(), state_dir: run_dir.at("network") };
    let images = ImageStore::open(&data_dir.at("images"), internal::helper(data_dir, internal::Job::Unpack)?)?;
    let parts = Parts {
        runtimes: node::runtimes(data_dir, &run_dir)?,
        images: Arc::new(images),
        network: Arc::new(network),
        shutdowns: node::shutdowns(data_dir),
    };
    let config = node_agent::Config::new("", std::net::Ipv4Addr::UNSPECIFIED.into(), &data_dir.dir, &data_dir.prefix);
    // Both are tried, also if the first fails.
    let (node, proxy) = (Agent::remove_all(&config, &parts).await, node_proxy::remove(&data_dir.prefix).await);
    node?;
    run_dir.remove()?;
    proxy.context("removing the rules of Services")
}

/// The network of a node that does not run. It can be removed without the programs and kernel features of a working
/// network.
struct Remains {
    prefix: String,
    state_dir: PathBuf,
}

#[async_trait]
impl Networks for Remains {
    async fn set_pod_cidr(&self, _cidr: Ipv4Net) -> Result<(), NetworkError> {
        Ok(())
    }

    fn withdraw_pod_cidr(&self, _next: Ipv4Net) -> usize {
        0
    }

    async fn add_pod(
        &self,
        _uid: &str,
        _hostname: &str,
        _host_ports: &[HostPort],
        _first_id: Option<u32>,
    ) -> Result<PodNetwork, NetworkError> {
        Err(NetworkError::NoPodCidr)
    }

    async fn add_host_network_pod(&self, _uid: &str) -> Result<PathBuf, NetworkError> {
        Err(NetworkError::NoPodCidr)
    }

    async fn remove_pod(&self, _uid: &str) -> Result<(), NetworkError> {
        Ok(())
    }

    async fn pods(&self) -> Result<Vec<String>, NetworkError> {
        Ok(Vec::new())
    }

    async fn set_routes(&self, _peers: &[Peer]) -> Result<(), NetworkError> {
        Ok(())
    }

    async fn remove_all(&self) -> Result<(), NetworkError> {
        node_network::remove(&self.prefix, &self.state_dir).await
    }
}
