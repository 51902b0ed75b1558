//! Topology spread constraints: required ones rule nodes out where the skew would be too large; the others add to the score of
//! nodes in emptier domains.

use std::collections::HashSet;
use std::sync::Arc;

use sched_framework::{
    ClusterEvent, CycleState, FilterPlugin, NodeInfo, Plugin, PodChange, PodInfo, SCORE_MAX, ScorePlugin, Snapshot, Status, TopologySpread,
    selects_node,
};

use super::taint_toleration;
use super::topology::DomainSums;

/// A domain of that label is one node; the Pods are counted there.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The raw score of a node without the labels of the constraints. It becomes 0.
const IGNORED: i64 = i64::MIN;

pub(crate) struct PodTopologySpread;

/// For each required constraint, the number of Pods of each domain.
struct Required(Vec<DomainSums>);

/// For each other constraint, the number of Pods of each domain, and how much a Pod counts.
struct Preferred(Vec<(DomainSums, f64)>);

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        "PodTopologySpread"
    }
}

fn constraints(pod: &PodInfo, is_required: bool) -> impl Iterator<Item = &TopologySpread> {
    pod.topology_spread.iter().filter(move |constraint| constraint.is_required == is_required)
}

fn is_in_all_domains(pod: &PodInfo, is_required: bool, node: &NodeInfo) -> bool {
    constraints(pod, is_required).all(|constraint| node.labels.contains_key(&constraint.topology_key))
}

/// Whether the Pods of the node count for the constraint.
fn includes(constraint: &TopologySpread, pod: &PodInfo, node: &NodeInfo) -> bool {
    (!constraint.honors_node_affinity || selects_node(pod, &node.name, &node.labels))
        && (!constraint.honors_taints || taint_toleration::tolerates_node(pod, node))
}

fn count(constraint: &TopologySpread, pod: &PodInfo, node: &NodeInfo) -> i64 {
    let counted = node.pods.values().filter(|other| !other.deleting && other.is_spread_by(constraint, &pod.namespace)).count();
    i64::try_from(counted).unwrap_or(i64::MAX)
}

impl FilterPlugin for PodTopologySpread {
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) -> Status {
        let mut domains: Vec<DomainSums> = constraints(pod, true).map(|_| DomainSums::default()).collect();
        if domains.is_empty() {
            return Status::Success;
        }
        for node in snapshot.nodes.iter().filter(|node| is_in_all_domains(pod, true, node)) {
            for (constraint, domains) in constraints(pod, true).zip(&mut domains) {
                if includes(constraint, pod, node)
                    && let Some(value) = node.labels.get(&constraint.topology_key)
                {
                    domains.add(value, count(constraint, pod, node));
                }
            }
        }
        state.write(self.name(), Required(domains));
        Status::Success
    }

    fn pod_changed(&self, state: &mut CycleState, pod: &PodInfo, _snapshot: &Snapshot, change: PodChange<'_>) {
        let Some(Required(domains)) = state.read_mut::<Required>(self.name()) else { return };
        let (other, node) = (change.pod, change.node);
        if other.deleting || !is_in_all_domains(pod, true, node) {
            return;
        }
        for (constraint, domains) in constraints(pod, true).zip(domains) {
            if other.is_spread_by(constraint, &pod.namespace)
                && includes(constraint, pod, node)
                && let Some(value) = node.labels.get(&constraint.topology_key)
            {
                domains.add(value, change.number);
            }
        }
    }

    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        const REASON: &str = "node(s) didn't match pod topology spread constraints";
        const NO_LABEL: &str = "node(s) didn't match pod topology spread constraints (missing required label)";
        let Some(Required(domains)) = state.read::<Required>(self.name()) else { return Status::Success };
        for (constraint, domains) in constraints(pod, true).zip(domains) {
            let Some(value) = node.labels.get(&constraint.topology_key) else {
                return Status::UnschedulableAndUnresolvable(vec![NO_LABEL.into()]);
            };
            let has_enough = i64::try_from(domains.len()).is_ok_and(|number| number >= constraint.min_domains);
            let emptiest = domains.lowest().filter(|_| has_enough).unwrap_or(0);
            let more = i64::from(pod.is_spread_by(constraint, &pod.namespace));
            if domains.get(value).unwrap_or(0) + more - emptiest > constraint.max_skew {
                return Status::Unschedulable(vec![REASON.into()]);
            }
        }
        Status::Success
    }

    fn events_to_register(&self) -> &'static [ClusterEvent] {
        &[
            ClusterEvent::NodeAdd,
            ClusterEvent::NodeDelete,
            ClusterEvent::UpdateNodeLabel,
            ClusterEvent::UpdateNodeTaint,
            ClusterEvent::AssignedPodAdd,
            ClusterEvent::UpdateAssignedPodLabel,
            ClusterEvent::AssignedPodDelete,
        ]
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "numbers of Pods and nodes, where a float is exact enough"
)]
impl ScorePlugin for PodTopologySpread {
    fn weight(&self) -> i64 {
        2
    }

    /// A Pod counts more in a topology with many domains: upstream's `topologyNormalizingWeight`.
    fn pre_score(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot, feasible: &[&Arc<NodeInfo>]) -> bool {
        let judged: Vec<_> = feasible.iter().filter(|node| is_in_all_domains(pod, false, node)).collect();
        let spread = |constraint: &TopologySpread| {
            let key = &constraint.topology_key;
            if key == HOSTNAME {
                return (DomainSums::default(), (judged.len() as f64 + 2.0).ln());
            }
            let values: HashSet<&String> = judged.iter().filter_map(|node| node.labels.get(key)).collect();
            let weight = (values.len() as f64 + 2.0).ln();
            let mut domains = DomainSums::default();
            values.iter().for_each(|value| domains.add(value, 0));
            for node in snapshot.nodes.iter().filter(|node| is_in_all_domains(pod, false, node) && includes(constraint, pod, node)) {
                // Domains without a feasible node do not matter.
                if let Some(value) = node.labels.get(key).filter(|value| values.contains(value)) {
                    domains.add(value, count(constraint, pod, node));
                }
            }
            (domains, weight)
        };
        let preferred: Vec<_> = constraints(pod, false).map(spread).collect();
        let has_preference = !preferred.is_empty();
        state.write(self.name(), Preferred(preferred));
        has_preference
    }

    /// The more Pods the domains of the node have, the higher: [`ScorePlugin::normalize_score`] reverses it.
    fn score(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let Some(Preferred(preferred)) = state.read::<Preferred>(self.name()) else { return 0 };
        if !is_in_all_domains(pod, false, node) {
            return IGNORED;
        }
        let score = |(constraint, (domains, weight)): (&TopologySpread, &(DomainSums, f64))| {
            let in_domain = node.labels.get(&constraint.topology_key).and_then(|value| domains.get(value));
            let pods = if constraint.topology_key == HOSTNAME { count(constraint, pod, node) } else { in_domain.unwrap_or(0) };
            pods as f64 * weight + (constraint.max_skew - 1) as f64
        };
        constraints(pod, false).zip(preferred).map(score).sum::<f64>().round() as i64
    }

    fn normalize_score(&self, scores: &mut [i64]) {
        let judged = || scores.iter().copied().filter(|score| *score != IGNORED);
        let (lowest, highest) = (judged().min().unwrap_or(0), judged().max().unwrap_or(0));
        for score in scores {
            *score = match *score {
                IGNORED => 0,
                _ if highest == 0 => SCORE_MAX,
                other => SCORE_MAX * (highest + lowest - other) / highest,
            };
        }
    }
}

#[cfg(test)]
mod tests;
