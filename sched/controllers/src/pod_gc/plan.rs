//! Which Pods are garbage.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use serde_json::{Value, json};

use crate::{meta, nodes, pods};

/// Set by an administrator on a Node that certainly runs nothing.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Nodes that Pods name and that do not exist, by the time since when.
pub type Quarantine = HashMap<String, Timestamp>;

/// Why a Pod is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The Pod's Node is gone; a live read must prove it.
    NodeGone,
    /// The Pod is being deleted and never had a Node.
    Unscheduled,
    /// It is being deleted and its Node is out of service.
    OutOfService,
    /// It has ended, and too many have.
    Ended,
}

impl Reason {
    /// The reason in the words of upstream's metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NodeGone => "orphaned",
            Self::Unscheduled => "unscheduled",
            Self::OutOfService => "out-of-service",
            Self::Ended => "terminated",
        }
    }
}

/// The thresholds of the collector.
pub struct Limits {
    /// Ended Pods that may stay; 0, all.
    pub ended_max: usize,
    /// A Node must be gone for this time.
    pub quarantine: Duration,
}

/// The result of one pass.
pub struct Plan {
    /// Pods to remove.
    pub remove: Vec<(Arc<Pod>, Reason)>,
    /// When a quarantine ends.
    pub look_again: Option<Duration>,
}

/// Whether a Node is out of service and not ready.
pub fn is_out_of_service(node: &Node) -> bool {
    let tainted = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| taint.key == OUT_OF_SERVICE);
    tainted && nodes::condition(node, "Ready").is_none_or(|ready| ready.status != "True")
}

/// Finds the garbage; `quarantine` remembers Nodes that are missing.
pub fn plan(pods: &[Arc<Pod>], nodes: &[Arc<Node>], quarantine: &mut Quarantine, limits: &Limits, now: Timestamp) -> Plan {
    let node_names: HashSet<&str> = nodes.iter().map(|node| meta::name(&node.metadata)).collect();
    let out: HashSet<&str> = nodes.iter().filter(|node| is_out_of_service(node)).map(|node| meta::name(&node.metadata)).collect();
    let missing: HashSet<&str> = pods.iter().filter_map(|pod| pods::node_name(pod)).filter(|node| !node_names.contains(node)).collect();
    quarantine.retain(|node, _| missing.contains(node.as_str()));
    let mut look_again: Option<Duration> = None;
    let mut gone: HashSet<&str> = HashSet::new();
    for node in missing {
        let since = *quarantine.entry(node.to_owned()).or_insert(now);
        let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        match limits.quarantine.checked_sub(waited).filter(|left| !left.is_zero()) {
            None => drop(gone.insert(node)),
            Some(left) => look_again = Some(look_again.map_or(left, |other| other.min(left))),
        }
    }
    let reason = |pod: &Arc<Pod>| {
        let deleting = meta::is_deleting(&pod.metadata);
        match pods::node_name(pod) {
            Some(node) if gone.contains(node) => Some(Reason::NodeGone),
            Some(node) if deleting && out.contains(node) => Some(Reason::OutOfService),
            None if deleting => Some(Reason::Unscheduled),
            _ => None,
        }
    };
    let mut remove: Vec<(Arc<Pod>, Reason)> = pods.iter().filter_map(|pod| Some((Arc::clone(pod), reason(pod)?))).collect();
    remove.extend(surplus(pods, limits).into_iter().map(|pod| (pod, Reason::Ended)));
    Plan { remove, look_again }
}

/// Ended Pods above the threshold: evicted Pods first, then the oldest.
fn surplus(pods: &[Arc<Pod>], limits: &Limits) -> Vec<Arc<Pod>> {
    if limits.ended_max == 0 {
        return Vec::new();
    }
    let mut ended: Vec<Arc<Pod>> = pods.iter().filter(|pod| pods::is_terminal(pod)).cloned().collect();
    let surplus = ended.len().saturating_sub(limits.ended_max);
    if surplus > 0 {
        let evicted = |pod: &Pod| pod.status.as_ref().and_then(|status| status.reason.as_deref()) == Some("Evicted");
        ended.sort_by_key(|pod| (!evicted(pod), meta::instant(pod.metadata.creation_timestamp.as_ref()), pod.metadata.name.clone()));
    }
    ended.truncate(surplus);
    ended
}

/// The status that a Pod gets before it is removed; `None` when it has ended by itself.
pub fn last_status(pod: &Pod, reason: Reason, now: Timestamp) -> Option<Value> {
    if pods::is_terminal(pod) {
        return None;
    }
    let mut status = json!({"phase": "Failed"});
    if reason == Reason::NodeGone {
        let condition = PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            reason: Some("DeletionByPodGC".to_owned()),
            message: Some("PodGC: node no longer exists".to_owned()),
            last_transition_time: Some(meta::whole_seconds(now)),
            ..PodCondition::default()
        };
        meta::overlay(&mut status, &json!({"conditions": pods::with_condition(pod, condition)}));
    }
    Some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: Option<&str>, deleting: bool, phase: &str, created: &str) -> Arc<Pod> {
        let mut metadata = json!({"name": name, "creationTimestamp": created});
        if deleting {
            metadata["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
        }
        Arc::new(
            serde_json::from_value(json!({"metadata": metadata, "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase}}))
                .expect("a Pod"),
        )
    }

    fn node(name: &str, out_of_service: bool) -> Arc<Node> {
        let taints = if out_of_service { json!([{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]) } else { json!([]) };
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"taints": taints}})).expect("a Node"))
    }

    fn removed(plan: &Plan) -> Vec<(&str, Reason)> {
        plan.remove.iter().map(|(pod, reason)| (meta::name(&pod.metadata), *reason)).collect()
    }

    #[test]
    fn pods_that_nobody_else_removes_are_removed() {
        let old = "2024-01-01T00:00:00Z";
        let pods = [
            pod("runs", Some("n1"), false, "Running", old),
            pod("leaves", Some("n1"), true, "Running", old),
            pod("orphan", Some("gone"), false, "Running", old),
            pod("never-bound", None, true, "Pending", old),
            pod("pending", None, false, "Pending", old),
            pod("stuck", Some("n2"), true, "Running", old),
            pod("stays", Some("n2"), false, "Running", old),
        ];
        let nodes = [node("n1", false), node("n2", true)];
        let limits = Limits { ended_max: 10, quarantine: Duration::from_secs(40) };
        let mut quarantine = Quarantine::default();
        let at = |second: i64| Timestamp::from_second(second).expect("in range");
        let first = plan(&pods, &nodes, &mut quarantine, &limits, at(0));
        assert_eq!(removed(&first), [("never-bound", Reason::Unscheduled), ("stuck", Reason::OutOfService)]);
        assert_eq!(first.look_again, Some(Duration::from_secs(40)));
        let later = plan(&pods, &nodes, &mut quarantine, &limits, at(40));
        assert!(removed(&later).contains(&("orphan", Reason::NodeGone)));
        let back = [node("n1", false), node("n2", true), node("gone", false)];
        plan(&pods, &back, &mut quarantine, &limits, at(41));
        let again = plan(&pods, &nodes, &mut quarantine, &limits, at(42));
        assert!(!removed(&again).contains(&("orphan", Reason::NodeGone)), "the quarantine starts anew");
    }

    #[test]
    fn the_oldest_ended_pods_above_the_threshold_go() {
        let pods: Vec<_> =
            (1..=5).map(|day| pod(&format!("d{day}"), Some("n1"), false, "Succeeded", &format!("2024-01-0{day}T00:00:00Z"))).collect();
        let limits = |ended_max: usize| Limits { ended_max, quarantine: Duration::ZERO };
        let mut quarantine = Quarantine::default();
        let mut gone = |ended_max: usize| {
            let plan = plan(&pods, &[node("n1", false)], &mut quarantine, &limits(ended_max), Timestamp::UNIX_EPOCH);
            removed(&plan).into_iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(gone(3), ["d1", "d2"]);
        assert!(gone(5).is_empty() && gone(0).is_empty());
    }
}
