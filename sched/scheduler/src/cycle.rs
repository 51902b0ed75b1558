//! One scheduling cycle: filter, score, choose. It works on memory alone: the same snapshot, Pod and starting point give the
//! same result.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use sched_framework::{ClusterEvent, CycleState, FilterPlugin, NodeInfo, PodInfo, Snapshot, Status};

use crate::plugins::Profile;

/// A cluster of fewer nodes is searched as a whole: upstream's `minFeasibleNodesToFind`.
const FEASIBLE_NODES_MIN: usize = 100;
/// The lowest share of nodes that must be feasible before the search ends, in per cent: upstream's
/// `minFeasibleNodesPercentageToFind`.
const FEASIBLE_PERCENT_MIN: usize = 5;

/// No node is feasible for a Pod. The message is upstream's `FitError`. It has no part about preemption, since the scheduler
/// does not look for Pods that could be preempted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FitError {
    /// The cluster has no node.
    #[error("no nodes available to schedule pods")]
    NoNodes,
    /// Plugins ruled out all nodes.
    #[error("0/{nodes} nodes are available: {}.", diagnosis.reasons())]
    Unschedulable { nodes: usize, diagnosis: Diagnosis },
}

impl FitError {
    /// The events that may make the Pod fit.
    pub fn events(self) -> HashSet<ClusterEvent> {
        match self {
            Self::NoNodes => [ClusterEvent::NodeAdd].into(),
            Self::Unschedulable { diagnosis, .. } => diagnosis.events,
        }
    }
}

/// Why nodes are not feasible: upstream's `Diagnosis`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Diagnosis {
    /// The number of nodes that each reason ruled out.
    node_count: BTreeMap<String, usize>,
    /// The reasons of a plugin that ruled out all nodes before any was filtered: upstream's `PreFilterMsg`.
    pre_filter: Option<String>,
    /// The events of the plugins that ruled nodes out.
    events: HashSet<ClusterEvent>,
}

impl Diagnosis {
    fn add(&mut self, filter: &dyn FilterPlugin, reasons: Vec<String>) {
        for reason in reasons {
            *self.node_count.entry(reason).or_default() += 1;
        }
        self.events.extend(filter.events_to_register());
    }

    fn reasons(&self) -> String {
        if let Some(message) = &self.pre_filter {
            return message.clone();
        }
        let mut reasons: Vec<String> = self.node_count.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        reasons.sort();
        reasons.join(", ")
    }
}

/// The best node for the Pod, or why there is none. The search begins at `start` in the snapshot and stores there where the
/// next one begins, so that successive cycles begin at different nodes (upstream's `nextStartNodeIndex`).
pub(crate) fn schedule_pod(profile: &Profile, pod: &PodInfo, snapshot: &Snapshot, start: &mut usize) -> Result<Arc<NodeInfo>, FitError> {
    let nodes = snapshot.nodes.len();
    if nodes == 0 {
        return Err(FitError::NoNodes);
    }
    let mut state = CycleState::default();
    for filter in &profile.filters {
        let (Status::Unschedulable(reasons) | Status::UnschedulableAndUnresolvable(reasons)) = filter.pre_filter(&mut state, pod, snapshot)
        else {
            continue;
        };
        let events = filter.events_to_register().iter().copied().collect();
        let diagnosis = Diagnosis { pre_filter: Some(reasons.join(", ")), events, ..Diagnosis::default() };
        return Err(FitError::Unschedulable { nodes, diagnosis });
    }
    let (mut feasible, mut diagnosis) = (Vec::new(), Diagnosis::default());
    let enough = feasible_nodes_to_find(nodes);
    let (before, after) = snapshot.nodes.split_at(*start % nodes);
    let mut processed = 0;
    for node in after.iter().chain(before) {
        processed += 1;
        if passes_filters(profile, &state, pod, node, &mut diagnosis) {
            feasible.push(node);
            if feasible.len() == enough {
                break;
            }
        }
    }
    *start = (*start + processed) % nodes;
    select_host(profile, &mut state, pod, snapshot, &feasible).ok_or(FitError::Unschedulable { nodes, diagnosis })
}

/// The number of feasible nodes at which the search ends: upstream's `numFeasibleNodesToFind`.
fn feasible_nodes_to_find(nodes: usize) -> usize {
    if nodes < FEASIBLE_NODES_MIN {
        return nodes;
    }
    let percent = 50_usize.saturating_sub(nodes / 125).max(FEASIBLE_PERCENT_MIN);
    (nodes * percent / 100).max(FEASIBLE_NODES_MIN)
}

/// Whether the Pod may run on the node. If not, the diagnosis counts why.
fn passes_filters(profile: &Profile, state: &CycleState, pod: &PodInfo, node: &NodeInfo, diagnosis: &mut Diagnosis) -> bool {
    for filter in &profile.filters {
        if let Status::Unschedulable(reasons) | Status::UnschedulableAndUnresolvable(reasons) = filter.filter(state, pod, node) {
            diagnosis.add(filter.as_ref(), reasons);
            return false;
        }
    }
    true
}

/// The feasible node with the highest score; the first one of several.
fn select_host(
    profile: &Profile,
    state: &mut CycleState,
    pod: &PodInfo,
    snapshot: &Snapshot,
    feasible: &[&Arc<NodeInfo>],
) -> Option<Arc<NodeInfo>> {
    if let [only] = feasible {
        return Some(Arc::clone(only));
    }
    let mut totals = vec![0_i64; feasible.len()];
    for plugin in &profile.scores {
        if !plugin.pre_score(state, pod, snapshot, feasible) {
            continue;
        }
        let mut scores: Vec<i64> = feasible.iter().map(|node| plugin.score(state, pod, node)).collect();
        plugin.normalize_score(&mut scores);
        for (total, score) in totals.iter_mut().zip(scores) {
            *total += score * plugin.weight();
        }
    }
    let highest = totals.iter().max()?;
    let index = totals.iter().position(|total| total == highest)?;
    feasible.get(index).map(|node| Arc::clone(node))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plugins::fixtures::{node, pod, requesting, snapshot};

    #[test]
    fn the_message_counts_reasons_as_upstream_does() {
        let tainted = |name: &str| node(name, json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}));
        let mut full = node("e", json!({"status": {"allocatable": {"cpu": "64", "memory": "2Ti"}}}));
        full.add_pod(Arc::new(requesting("a", "1", "1Gi")));
        let nodes =
            snapshot(vec![tainted("a"), tainted("b"), node("c", json!({})), node("d", json!({"spec": {"unschedulable": true}})), full]);
        let error = schedule_pod(&Profile::default(), &requesting("p", "64", "1Ti"), &nodes, &mut 0)
            .map(|n| n.name.clone())
            .expect_err("nothing fits");
        assert_eq!(
            error.to_string(),
            "0/5 nodes are available: 1 Insufficient memory, 1 node(s) were unschedulable, 2 Insufficient cpu, 2 node(s) had untolerated \
             taint(s)."
        );
        assert!(error.events().contains(&ClusterEvent::UpdateNodeTaint));
    }

    #[test]
    fn the_message_has_no_part_about_preemption() {
        let mut full = node("n", json!({}));
        full.add_pod(Arc::new(requesting("a", "4", "1Gi")));
        for priority in [0, 1] {
            let pod = PodInfo { priority, ..requesting("p", "1", "1Gi") };
            let nodes = snapshot(vec![full.clone()]);
            let error = schedule_pod(&Profile::default(), &pod, &nodes, &mut 0).map(|n| n.name.clone()).expect_err("nothing fits");
            assert_eq!(error.to_string(), "0/1 nodes are available: 1 Insufficient cpu.");
        }
    }

    #[test]
    fn without_nodes_the_message_says_so() {
        let error = schedule_pod(&Profile::default(), &pod("p", json!({})), &Snapshot::default(), &mut 0)
            .map(|n| n.name.clone())
            .expect_err("no node");
        assert_eq!(error.to_string(), "no nodes available to schedule pods");
    }

    #[test]
    fn the_emptier_node_is_chosen() {
        let mut busy = node("busy", json!({}));
        busy.add_pod(Arc::new(requesting("a", "2", "4Gi")));
        let nodes = snapshot(vec![busy, node("idle", json!({}))]);
        let chosen = schedule_pod(&Profile::default(), &requesting("p", "1", "1Gi"), &nodes, &mut 0).expect("fits");
        assert_eq!(chosen.name, "idle");
    }

    #[test]
    fn in_a_large_cluster_each_cycle_searches_the_next_share_of_nodes() {
        assert_eq!((feasible_nodes_to_find(50), feasible_nodes_to_find(1_000), feasible_nodes_to_find(5_000)), (50, 420, 500));
        let nodes = snapshot((0..1_000).map(|n| node(&n.to_string(), json!({}))).collect());
        let mut start = 0;
        let profile = Profile::default();
        let first = schedule_pod(&profile, &pod("p", json!({})), &nodes, &mut start).expect("fits").name.clone();
        assert_eq!((first.as_str(), start), ("0", 420));
        let second = schedule_pod(&profile, &pod("p", json!({})), &nodes, &mut start).expect("fits").name.clone();
        assert_eq!(second, "420");
    }
}
