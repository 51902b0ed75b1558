//! Node IPAM: every Node gets its own part of the cluster's Pod addresses.
//!
//! Watches Nodes; writes `spec.podCIDR` and `spec.podCIDRs` of Nodes without them. Never changes or removes the range of a
//! Node: a range is free again when its Node is gone.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use api_client::events::{Recorder, reference};
use api_client::informer::{Change, Informer, ObjectKey};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use serde_json::json;

use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, writes};

/// The controller; its keys are Nodes' names.
pub struct NodeIpam {
    client: kube::Client,
    recorder: Recorder,
    nodes: Informer<Node>,
    range: Range,
    /// Ranges that were written and that the cache may not show yet, by Node UID.
    given: Mutex<BTreeMap<String, Ipv4Net>>,
}

/// The allocated ranges.
#[derive(Clone, Copy, Debug)]
struct Range {
    cluster: Ipv4Net,
    part_len: u8,
    services: Option<Ipv4Net>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("node_ipam"));
    let nodes = context.informer::<Node>();
    let node_cache = nodes.clone();
    context.feed(&queue, move |change: &Change<Node>| match &change.new {
        Some(node) => vec![meta::name(&node.metadata).to_owned()],
        // A range is free again: Nodes without one may get it.
        None => node_cache.list().iter().filter(|node| cidrs(node).is_empty()).map(|node| meta::name(&node.metadata).to_owned()).collect(),
    });
    let config = Arc::clone(&context.config);
    let range = Range { cluster: config.cluster_cidr, part_len: config.node_cidr_mask_size, services: config.service_cidr };
    let controller =
        NodeIpam { client: context.client(), recorder: context.recorder(NodeIpam::NAME), nodes, range, given: Mutex::new(BTreeMap::new()) };
    context.run(Arc::new(controller), queue);
}

/// The parts that a Node has.
fn cidrs(node: &Node) -> Vec<Ipv4Net> {
    let Some(spec) = &node.spec else { return Vec::new() };
    let all = spec.pod_cidrs.iter().flatten().chain(spec.pod_cidr.iter());
    all.filter_map(|cidr| cidr.parse().ok()).collect()
}

fn overlap(a: Ipv4Net, b: Ipv4Net) -> bool {
    a.contains(&b.network()) || b.contains(&a.network())
}

/// The lowest range that overlaps no allocated range and no Service address.
fn free_part(range: Range, taken: &[Ipv4Net]) -> Option<Ipv4Net> {
    let mut taken: Vec<Ipv4Net> = taken.iter().copied().chain(range.services).collect();
    taken.sort_by_key(Ipv4Net::network);
    let mut at = u64::from(u32::from(range.cluster.network()));
    let end = u64::from(u32::from(range.cluster.broadcast())) + 1;
    let step = 1_u64 << 32_u32.checked_sub(u32::from(range.part_len))?;
    while at + step <= end {
        let part = Ipv4Net::new(Ipv4Addr::from(u32::try_from(at).ok()?), range.part_len).ok()?;
        match taken.iter().find(|other| overlap(**other, part)) {
            None => return Some(part),
            // Continue after the obstacle, at the next boundary of a part.
            Some(other) => at = (u64::from(u32::from(other.broadcast())) + 1).max(at + step).next_multiple_of(step),
        }
    }
    None
}

impl Controller for NodeIpam {
    const NAME: &'static str = "node-ipam-controller";
    /// One worker: two Nodes must not get the same range.
    const WORKERS: usize = 1;
    type Key = String;

    async fn reconcile(&self, key: &String) -> Result<Next, Failure> {
        let Some(node) = self.nodes.get(&ObjectKey::new("", key)) else { return Ok(Next::OnChange) };
        if !cidrs(&node).is_empty() || meta::is_deleting(&node.metadata) {
            return Ok(Next::OnChange);
        }
        let Some(part) = self.choose(&node) else {
            self.recorder.normal(&reference(node.as_ref()), "CIDRNotAvailable", format!("Node {key} status is now: CIDRNotAvailable"));
            return Err(Failure::Unusable { object: format!("Node {key}"), problem: format!("no part of {} is free", self.range.cluster) });
        };
        let text = part.to_string();
        let written = writes::patch(&self.client, node.as_ref(), json!({"spec": {"podCIDR": text, "podCIDRs": [text]}})).await;
        if let Err(failure) = written {
            self.given.lock().remove(meta::uid(&node.metadata));
            if !failure.is_conflict() {
                let message = format!("Node {key} status is now: CIDRAssignmentFailed");
                self.recorder.normal(&reference(node.as_ref()), "CIDRAssignmentFailed", message);
            }
            return Err(failure);
        }
        tracing::info!(node = key, pod_cidr = text, "pod range given");
        Ok(Next::OnChange)
    }
}

impl NodeIpam {
    /// Allocates a range for the Node, and remembers it until the cache shows it.
    fn choose(&self, node: &Node) -> Option<Ipv4Net> {
        let nodes = self.nodes.list();
        let mut given = self.given.lock();
        given.retain(|uid, _| nodes.iter().any(|node| meta::uid(&node.metadata) == uid && cidrs(node).is_empty()));
        let taken: Vec<Ipv4Net> = nodes.iter().flat_map(|node| cidrs(node)).chain(given.values().copied()).collect();
        let part = free_part(self.range, &taken)?;
        given.insert(meta::uid(&node.metadata).to_owned(), part);
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Ipv4Net {
        text.parse().expect("a network")
    }

    #[test]
    fn the_lowest_free_part_is_given() {
        type Case<'a> = (&'a str, u8, Option<&'a str>, &'a [&'a str], Option<&'a str>);
        let cases: &[Case<'_>] = &[
            ("10.244.0.0/16", 24, None, &[], Some("10.244.0.0/24")),
            ("10.244.0.0/16", 24, None, &["10.244.0.0/24", "10.244.2.0/24"], Some("10.244.1.0/24")),
            ("10.244.0.0/16", 24, None, &["10.244.0.0/23"], Some("10.244.2.0/24")),
            ("10.244.0.0/16", 24, None, &["10.244.0.128/25"], Some("10.244.1.0/24")),
            ("10.244.0.0/23", 24, None, &["10.244.0.0/24", "10.244.1.0/24"], None),
            ("10.0.0.0/8", 24, Some("10.0.0.0/12"), &[], Some("10.16.0.0/24")),
            ("255.255.255.0/24", 25, None, &["255.255.255.0/25", "255.255.255.128/25"], None),
            ("10.244.0.0/24", 16, None, &[], None),
        ];
        for (cluster, part_len, services, taken, expected) in cases {
            let range = Range { cluster: net(cluster), part_len: *part_len, services: services.map(net) };
            let taken: Vec<Ipv4Net> = taken.iter().map(|t| net(t)).collect();
            assert_eq!(free_part(range, &taken), expected.map(net), "{cluster} {taken:?}");
        }
    }
}
