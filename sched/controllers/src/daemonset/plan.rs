//! What a DaemonSet needs next: the nodes that get a Pod and the Pods to delete. The rolling update runs only when every node
//! has what it needs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};

use super::nodes::{Judge, Verdict};
use super::{rollout, template};
use crate::{meta, pods};

/// The most creations and the most deletions of a pass, upstream's `BurstReplicas`.
const BURST_MAX: usize = 250;

/// A node with the DaemonSet's Pods on it.
pub struct NodePods {
    /// The node's name.
    pub node: String,
    /// Whether the node is for the DaemonSet.
    pub verdict: Verdict,
    /// The Pods that are there or wait for the node, in the order in which they stay. Those that ended and are being deleted
    /// are not among them.
    pub pods: Vec<Arc<Pod>>,
}

/// All nodes.
pub struct Assignment {
    /// By name.
    pub nodes: Vec<NodePods>,
    /// Pods that wait for a node that does not exist: the Pod garbage collector does not find them.
    pub lost: Vec<Arc<Pod>>,
}

/// What a plan is made from.
pub struct Snapshot<'a> {
    /// The DaemonSet.
    pub set: &'a DaemonSet,
    /// The hash of the present revision.
    pub hash: &'a str,
    /// The nodes.
    pub assignment: &'a Assignment,
    /// How long a node's failed Pod has to stay; `None` if it may be deleted.
    pub backing_off: &'a dyn Fn(&str) -> Option<Duration>,
    /// The time.
    pub now: Timestamp,
}

/// An ended Pod that is deleted.
#[derive(Debug, PartialEq)]
pub struct Ended {
    /// The node.
    pub node: String,
    /// The Pod.
    pub pod: Arc<Pod>,
    /// Whether it failed.
    pub failed: bool,
}

/// The next writes.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// The nodes that get a Pod.
    pub create: Vec<String>,
    /// The Pods to delete.
    pub delete: Vec<Arc<Pod>>,
    /// Those of them that ended by themselves.
    pub ended: Vec<Ended>,
    /// When a failed Pod may be deleted.
    pub look_again: Option<Duration>,
}

impl Snapshot<'_> {
    /// Whether the Pod is of the present revision: by the hash, or by the generation of the template, which Pods of older
    /// servers have alone.
    pub fn is_updated(&self, pod: &Pod) -> bool {
        let by_hash = !self.hash.is_empty() && meta::label(&pod.metadata, crate::revisions::REVISION_LABEL) == Some(self.hash);
        let generation = template::generation(self.set).map(|generation| generation.to_string());
        by_hash || generation.is_some_and(|generation| meta::label(&pod.metadata, template::GENERATION_LABEL) == Some(&generation))
    }

    /// Whether the Pod is available.
    pub fn is_available(&self, pod: &Pod) -> bool {
        pods::is_available(pod, self.set.spec.min_ready_seconds.unwrap_or(0), self.now)
    }
}

/// Sorts the Pods by their nodes.
pub fn assign(set: &DaemonSet, nodes: &[Arc<Node>], owned: &[Arc<Pod>]) -> Assignment {
    let judge = Judge::new(set);
    let mut by_node: BTreeMap<&str, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in owned.iter().filter(|pod| !(pods::is_terminal(pod) && meta::is_deleting(&pod.metadata))) {
        if let Some(node) = template::target_node(pod) {
            by_node.entry(node).or_default().push(Arc::clone(pod));
        }
    }
    // Bound Pods first, then the oldest.
    for pods in by_node.values_mut() {
        pods.sort_by_cached_key(|pod| {
            let created = meta::instant(pod.metadata.creation_timestamp.as_ref());
            (crate::pods::node_name(pod).is_none(), created, pod.metadata.name.clone())
        });
    }
    let mut all = Vec::new();
    for node in nodes {
        let name = meta::name(&node.metadata);
        let pods = by_node.remove(name).unwrap_or_default();
        all.push(NodePods { node: name.to_owned(), verdict: judge.verdict(node), pods });
    }
    all.sort_by(|a, b| a.node.cmp(&b.node));
    let lost = by_node.into_values().flatten().filter(|pod| pods::node_name(pod).is_none()).collect();
    Assignment { nodes: all, lost }
}

/// The next writes.
pub fn plan(snapshot: &Snapshot<'_>) -> Plan {
    let mut plan = Plan::default();
    for node_pods in &snapshot.assignment.nodes {
        on_node(snapshot, node_pods, &mut plan);
    }
    let lost = snapshot.assignment.lost.iter().filter(|pod| !meta::is_deleting(&pod.metadata));
    plan.delete.extend(lost.cloned());
    if plan.create.is_empty() && plan.delete.is_empty() {
        rollout::update(snapshot, &mut plan);
    }
    plan.create.truncate(BURST_MAX);
    plan.delete.truncate(BURST_MAX);
    let Plan { delete, ended, .. } = &mut plan;
    ended.retain(|ended| delete.iter().any(|pod| Arc::ptr_eq(pod, &ended.pod)));
    plan
}

fn on_node(snapshot: &Snapshot<'_>, node_pods: &NodePods, plan: &mut Plan) {
    if node_pods.verdict.runs && node_pods.pods.is_empty() {
        plan.create.push(node_pods.node.clone());
    } else if node_pods.verdict.stays {
        let running = running(snapshot, node_pods, plan);
        if !rollout::allows_surge(snapshot.set) {
            plan.delete.extend(running.into_iter().skip(1));
        } else if running.is_empty() && node_pods.verdict.runs {
            plan.create.push(node_pods.node.clone());
        } else if running.len() > 1 {
            surplus_of_surge(snapshot, running, plan);
        }
    } else {
        plan.delete.extend(node_pods.pods.iter().filter(|pod| !meta::is_deleting(&pod.metadata)).cloned());
    }
}

/// The Pods that neither end nor have ended. Those that have ended are deleted; failed ones wait, lest the kubelet rejects
/// Pods as fast as they are created.
fn running(snapshot: &Snapshot<'_>, node_pods: &NodePods, plan: &mut Plan) -> Vec<Arc<Pod>> {
    let mut running = Vec::new();
    for pod in node_pods.pods.iter().filter(|pod| !meta::is_deleting(&pod.metadata)) {
        let failed = pods::phase(pod) == "Failed";
        if failed && let Some(delay) = (snapshot.backing_off)(&node_pods.node) {
            plan.look_again = Some(plan.look_again.map_or(delay, |other| other.min(delay)));
        } else if pods::is_terminal(pod) {
            plan.delete.push(Arc::clone(pod));
            plan.ended.push(Ended { node: node_pods.node.clone(), pod: Arc::clone(pod), failed });
        } else {
            running.push(Arc::clone(pod));
        }
    }
    running
}

/// While the update surges, a node may have one old and one new Pod: the old one as long as it is ready and the new one is not
/// available.
fn surplus_of_surge(snapshot: &Snapshot<'_>, running: Vec<Arc<Pod>>, plan: &mut Plan) {
    let (new, old): (Vec<_>, Vec<_>) = running.into_iter().partition(|pod| snapshot.is_updated(pod));
    if let (Some(newest), Some(oldest)) = (new.first(), old.first())
        && (!pods::is_ready(oldest) || snapshot.is_available(newest))
    {
        plan.delete.push(Arc::clone(oldest));
    }
    plan.delete.extend(new.into_iter().skip(1).chain(old.into_iter().skip(1)));
}

#[cfg(test)]
mod tests;
