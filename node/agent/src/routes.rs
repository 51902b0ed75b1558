//! Programs the node's own Pod range and the routes to the other nodes' Pods. Level-triggered: after each change of a Node, and
//! periodically, the whole set is written again, because the kernel drops the routes over a link that goes down. A range that has fewer
//! addresses than the node takes Pods ends the agent, before the range is programmed and the node becomes ready.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node as ApiNode;
use node_network::{NetworkError, Peer};
use tokio_util::sync::CancellationToken;

use crate::error::{AgentError, chain};
use crate::health::Health;
use crate::node::Node;
use crate::pod_range;

/// Wait after a failed attempt.
const RETRY: Duration = Duration::from_secs(2);
/// The node's problem while it has no Pod range; upstream's words for a missing network.
const NOT_READY: &str =
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:the node has no Pod range yet";

/// Follows Nodes until cancelled.
///
/// # Errors
/// [`AgentError::MaxPods`] when the node's Pod range is too narrow for its Pods.
pub(crate) async fn run(node: Arc<Node>, health: Arc<Health>, cancel: CancellationToken) -> Result<(), AgentError> {
    cancel.run_until_cancelled(follow(&node, &health)).await.unwrap_or(Ok(()))
}

async fn follow(node: &Node, health: &Health) -> Result<(), AgentError> {
    let mut changed = node.objects.nodes_changed();
    let (mut own, mut peers): (Option<Ipv4Net>, Option<Vec<Peer>>) = (None, None);
    loop {
        changed.mark_unchanged();
        let mut settled = true;
        if own.is_none() {
            let assigned = assigned(node);
            if let Some(cidr) = assigned {
                match pod_range::check(cidr, node.config.pods_max) {
                    Err(error) if !node.config.has_pods_max => tracing::warn!(%error, "the node takes more Pods than it has addresses"),
                    checked => checked?,
                }
            }
            match program_own(node, assigned).await {
                Ok(()) => {
                    own = assigned;
                    health.set("network", own.is_none().then(|| NOT_READY.to_owned()));
                    // Only now: a task that waits for it reads the health next.
                    node.has_pod_range.send_replace(own.is_some());
                }
                Err(error) => {
                    let message = chain(&error);
                    tracing::warn!(message, "Pod range not programmed");
                    health.set("network", Some(format!("container runtime network not ready: {message}")));
                    settled = false;
                }
            }
        }
        let wanted = wanted_peers(&node.objects.nodes(), &node.config.node_name);
        if own.is_some() && peers.as_ref() != Some(&wanted) {
            match node.parts.network.set_routes(&wanted).await {
                Ok(()) => peers = Some(wanted),
                Err(error) => {
                    tracing::warn!(error = chain(&error), "routes to other nodes' Pods not set");
                    settled = false;
                }
            }
        }
        let look_again = if settled { node.config.status_check } else { RETRY };
        match tokio::time::timeout(look_again, changed.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_gone)) => return Ok(()),
            Err(_elapsed) => peers = None,
        }
    }
}

/// The node's Pod range, once it has one.
fn assigned(node: &Node) -> Option<Ipv4Net> {
    let of_api = || node.objects.node(&node.config.node_name).and_then(|node| pod_cidr(&node));
    node.config.pod_cidr.or_else(of_api)
}

/// Passes the node's Pod range to the network, when the node has one.
async fn program_own(node: &Node, assigned: Option<Ipv4Net>) -> Result<(), NetworkError> {
    let Some(cidr) = assigned else { return Ok(()) };
    node.parts.network.set_pod_cidr(cidr).await?;
    tracing::info!(%cidr, "Pod range programmed");
    Ok(())
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
