//! Programs the node's own Pod range and the routes to the other nodes' Pods. Level-triggered: after each change of a Node, and
//! periodically, the whole set is written again, because the kernel drops the routes over a link that goes down. A range that has fewer
//! addresses than the node takes Pods ends the agent, before the range is programmed and the node becomes ready. A Node that was deleted
//! and made again may have another range: the node takes it once that cuts no Pod off, and is not ready until then, also when the agent
//! starts again.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node as ApiNode;
use node_network::{NetworkError, Peer};
use thiserror::Error;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::{AgentError, chain};
use crate::health::{self, Health};
use crate::node::Node;
use crate::pod_range;

/// Wait after a failed attempt.
const RETRY: Duration = Duration::from_secs(2);
/// How long a Node that was registered again may be without a range before it is not ready. It gets one in a moment, and its Pods would
/// leave their Services meanwhile.
const RANGE_WITHIN: Duration = Duration::from_secs(5);

/// Why the node's Pod range is not programmed.
#[derive(Debug, Error)]
enum RangeError {
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The Node was deleted and registered again, and its range is another one.
    #[error(
        "the Node has the Pod range {next}, but {pods} of its Pods have addresses of {present}, to which other nodes have no route any more: \
         delete these Pods, or the files of static ones, and the node takes its new range"
    )]
    InUse { present: Ipv4Net, next: Ipv4Net, pods: usize },
}

/// Follows Nodes until cancelled.
///
/// # Errors
/// [`AgentError::MaxPods`] when the node's Pod range is too narrow for its Pods.
pub(crate) async fn run(node: Arc<Node>, health: Arc<Health>, cancel: CancellationToken) -> Result<(), AgentError> {
    let routes = Routes { node: &node, health: &health, own: None, is_withdrawn: false, without_range_since: None, peers: None };
    cancel.run_until_cancelled(routes.follow()).await.unwrap_or(Ok(()))
}

/// What the network has.
struct Routes<'a> {
    node: &'a Node,
    health: &'a Health,
    /// The node's range.
    own: Option<Ipv4Net>,
    /// New Pods get no addresses of it any more: the Node has another range.
    is_withdrawn: bool,
    /// When the Node was found to have no range any more.
    without_range_since: Option<Instant>,
    /// The routes to other nodes' Pods.
    peers: Option<Vec<Peer>>,
}

impl Routes<'_> {
    async fn follow(mut self) -> Result<(), AgentError> {
        let mut changed = self.node.objects.nodes_changed();
        loop {
            changed.mark_unchanged();
            let has_own = self.settle_own().await?;
            let has_peers = self.settle_peers().await;
            let look_again = if has_own && has_peers { self.node.config.status_check } else { RETRY };
            match tokio::time::timeout(look_again, changed.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_gone)) => return Ok(()),
                Err(_elapsed) => self.peers = None,
            }
        }
    }

    /// Programs the node's Pod range if the network does not have it. Returns whether nothing is left to do.
    async fn settle_own(&mut self) -> Result<bool, AgentError> {
        let Some(range) = assigned(self.node) else { return Ok(self.settle_without_range()) };
        self.without_range_since = None;
        if self.own == Some(range) && !self.is_withdrawn {
            return Ok(true);
        }
        match pod_range::check(range, self.node.config.pods_max) {
            Err(error) if !self.node.config.has_pods_max => {
                if !self.is_withdrawn {
                    tracing::warn!(%error, "the node takes more Pods than it has addresses");
                }
            }
            checked => checked?,
        }
        match self.program_own(range).await {
            Ok(()) => {
                tracing::info!(cidr = %range, "Pod range programmed");
                (self.own, self.is_withdrawn, self.peers) = (Some(range), false, None);
                self.health.set(health::NETWORK, None);
                // Only now: a task that waits for it reads the health next.
                self.node.has_pod_range.send_replace(true);
                Ok(true)
            }
            Err(error) => {
                let problem = chain(&error);
                if self.health.set(health::NETWORK, Some(format!("container runtime network not ready: {problem}"))) {
                    tracing::warn!(problem, "Pod range not programmed");
                }
                Ok(false)
            }
        }
    }

    /// The Node has no range. If it had one, it was deleted and registered again, and the old range may be another node's by now: no
    /// other Pod gets an address of it. Returns whether nothing is left to do.
    fn settle_without_range(&mut self) -> bool {
        let is_registered = self.node.objects.node(&self.node.config.node_name).is_some();
        let Some(present) = self.own.filter(|_| is_registered) else {
            // A Node that was deleted gets its range with its next registration.
            self.without_range_since = None;
            return true;
        };
        if !self.is_withdrawn {
            self.is_withdrawn = true;
            self.node.parts.network.withdraw_pod_cidr(present);
        }
        if self.without_range_since.get_or_insert_with(Instant::now).elapsed() >= RANGE_WITHIN {
            self.health.set(health::NETWORK, Some(health::NO_POD_RANGE.to_owned()));
        }
        false
    }

    /// Passes a range to the network. A range that replaces another one, also that of an earlier agent, waits until it cuts no Pod off.
    async fn program_own(&mut self, next: Ipv4Net) -> Result<(), RangeError> {
        let network = &self.node.parts.network;
        if let Some(present) = self.own.filter(|present| *present != next) {
            self.is_withdrawn = true;
            let pods = network.withdraw_pod_cidr(next);
            if pods > 0 {
                return Err(RangeError::InUse { present, next, pods });
            }
        }
        match network.set_pod_cidr(next).await {
            Err(NetworkError::PreviousRange { previous: present, pods, .. }) => {
                (self.own, self.is_withdrawn, self.peers) = (Some(present), true, None);
                self.node.has_pod_range.send_replace(true);
                Err(RangeError::InUse { present, next, pods })
            }
            other => Ok(other?),
        }
    }

    /// Sets the routes to other nodes' Pods. Returns whether nothing is left to do.
    async fn settle_peers(&mut self) -> bool {
        let peers = wanted_peers(&self.node.objects.nodes(), &self.node.config.node_name);
        if self.own.is_none() || self.peers.as_ref() == Some(&peers) {
            return true;
        }
        match self.node.parts.network.set_routes(&peers).await {
            Ok(()) => {
                self.peers = Some(peers);
                true
            }
            Err(error) => {
                tracing::warn!(error = chain(&error), "routes to other nodes' Pods not set");
                false
            }
        }
    }
}

/// The node's Pod range, once it has one.
fn assigned(node: &Node) -> Option<Ipv4Net> {
    let of_api = || node.objects.node(&node.config.node_name).and_then(|node| pod_cidr(&node));
    node.config.pod_cidr.or_else(of_api)
}

/// The Pod range in a Node object.
pub(crate) fn pod_cidr(node: &ApiNode) -> Option<Ipv4Net> {
    let spec = node.spec.as_ref()?;
    let ranges = spec.pod_cidr.iter().chain(spec.pod_cidrs.iter().flatten());
    ranges.into_iter().find_map(|range| range.parse().ok())
}

/// Every other node that has a Pod range and an address, in order.
fn wanted_peers(nodes: &[Arc<ApiNode>], own_name: &str) -> Vec<Peer> {
    let mut peers: Vec<Peer> = nodes
        .iter()
        .filter(|node| node.metadata.name.as_deref() != Some(own_name))
        .filter_map(|node| {
            let addresses = node.status.as_ref()?.addresses.as_ref()?;
            let internal = addresses.iter().find(|address| address.type_ == "InternalIP")?;
            match internal.address.parse().ok()? {
                IpAddr::V4(via) => Some(Peer { pod_cidr: pod_cidr(node)?, via }),
                IpAddr::V6(_) => None,
            }
        })
        .collect();
    peers.sort();
    peers
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn peers_are_the_others_that_can_be_reached() {
        let node = |name: &str, cidr: Option<&str>, ip: Option<&str>| -> Arc<ApiNode> {
            let addresses: Vec<_> = ip.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
            let object = json!({"metadata": {"name": name}, "spec": {"podCIDR": cidr}, "status": {"addresses": addresses}});
            Arc::new(serde_json::from_value(object).expect("a node"))
        };
        let nodes = [
            node("c", Some("10.244.2.0/24"), Some("192.0.2.3")),
            node("me", Some("10.244.0.0/24"), Some("192.0.2.1")),
            node("b", Some("10.244.1.0/24"), Some("192.0.2.2")),
            node("young", None, Some("192.0.2.4")),
            node("lost", Some("10.244.4.0/24"), None),
        ];
        let got: Vec<String> = wanted_peers(&nodes, "me").iter().map(|peer| format!("{} via {}", peer.pod_cidr, peer.via)).collect();
        assert_eq!(got, ["10.244.1.0/24 via 192.0.2.2", "10.244.2.0/24 via 192.0.2.3"]);
    }
}
