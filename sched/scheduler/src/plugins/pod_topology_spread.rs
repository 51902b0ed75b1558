//! Topology spread constraints: required ones rule nodes out where the skew would be too large; the others add to the score of
//! nodes in emptier domains.

use sched_framework::{
    ClusterEvent, CycleState, FilterPlugin, NodeInfo, Normalization, Plugin, PodChange, PodInfo, Scope, ScorePlugin, Snapshot, Status,
    TopologySpread, selects_node,
};

use super::taint_toleration;
use super::topology::DomainSums;

/// A domain of that label is one node.
const HOSTNAME: &str = "kubernetes.io/hostname";

pub(crate) struct PodTopologySpread;

/// For each required constraint, the number of Pods of each domain.
struct Required(Vec<DomainSums>);

/// For each other constraint, the number of Pods of each domain, and how much a Pod counts.
struct Preferred {
    domains: Vec<DomainSums>,
    weights: Vec<f64>,
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        "PodTopologySpread"
    }

    fn scope(&self) -> Scope {
        Scope::Cluster
    }
}

fn constraints(pod: &PodInfo, is_required: bool) -> impl Iterator<Item = &TopologySpread> {
    pod.topology_spread.iter().filter(move |constraint| constraint.is_required == is_required)
}

/// Whether the node has the labels that the constraints require. `all` are the domains of the constraints.
fn is_in_all_domains(all: &[DomainSums], pod: &PodInfo, is_required: bool, node: &NodeInfo) -> bool {
    constraints(pod, is_required).zip(all).all(|(constraint, domains)| !constraint.requires_label || domains.domain(node).is_some())
}

/// Whether the Pods of the node count for the constraint.
fn includes(constraint: &TopologySpread, pod: &PodInfo, node: &NodeInfo) -> bool {
    (!constraint.honors_node_affinity || selects_node(pod, &node.name, &node.labels))
        && (!constraint.honors_taints || taint_toleration::tolerates_node(pod, node))
}

fn count(constraint: &TopologySpread, pod: &PodInfo, node: &NodeInfo) -> i64 {
    let counted = node.pods.iter().filter(|other| !other.deleting && other.is_spread_by(constraint, &pod.namespace)).count();
    i64::try_from(counted).unwrap_or(i64::MAX)
}

/// For each required constraint or each other one, the number of Pods of each domain.
fn domains(pod: &PodInfo, is_required: bool, snapshot: &Snapshot) -> Vec<DomainSums> {
    let of_constraint = |constraint: &TopologySpread| DomainSums::new(&constraint.topology_key, &snapshot.nodes);
    let mut all: Vec<DomainSums> = constraints(pod, is_required).map(of_constraint).collect();
    let nodes = if all.is_empty() { &[] } else { snapshot.nodes.as_slice() };
    for node in nodes {
        if is_in_all_domains(&all, pod, is_required, node) {
            let included = constraints(pod, is_required).zip(&mut all).filter(|(constraint, _)| includes(constraint, pod, node));
            included.for_each(|(constraint, domains)| domains.add(node, count(constraint, pod, node)));
        }
    }
    all
}

/// Adds a Pod that comes or leaves to the numbers of [`domains`].
fn add_change(all: &mut [DomainSums], pod: &PodInfo, is_required: bool, change: PodChange<'_>) {
    let (other, node) = (change.pod, change.node);
    if all.is_empty() || other.deleting || !is_in_all_domains(all, pod, is_required, node) {
        return;
    }
    for (constraint, domains) in constraints(pod, is_required).zip(all) {
        if other.is_spread_by(constraint, &pod.namespace) && includes(constraint, pod, node) {
            domains.add(node, change.number);
        }
    }
}

impl FilterPlugin for PodTopologySpread {
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) -> Status {
        state.write(self.name(), Required(domains(pod, true, snapshot)));
        Status::Success
    }

    fn pod_changed(&self, state: &mut CycleState, pod: &PodInfo, _snapshot: &Snapshot, change: PodChange<'_>) {
        if let Some(Required(domains)) = state.read_mut(self.name()) {
            add_change(domains, pod, true, change);
        }
    }

    fn may_reject(&self, state: &CycleState, _pod: &PodInfo) -> bool {
        state.read::<Required>(self.name()).is_some_and(|Required(domains)| !domains.is_empty())
    }

    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        const REASON: &str = "node(s) didn't match pod topology spread constraints";
        const NO_LABEL: &str = "node(s) didn't match pod topology spread constraints (missing required label)";
        let Some(Required(domains)) = state.read::<Required>(self.name()) else { return Status::Success };
        for (constraint, domains) in constraints(pod, true).zip(domains) {
            let Some(domain) = domains.domain(node) else {
                return Status::UnschedulableAndUnresolvable(vec![NO_LABEL.into()]);
            };
            let has_enough = i64::try_from(domains.len()).is_ok_and(|number| number >= constraint.min_domains);
            let emptiest = domains.lowest().filter(|_| has_enough).unwrap_or(0);
            let more = i64::from(pod.is_spread_by(constraint, &pod.namespace));
            if domains.sum(domain) + more - emptiest > constraint.max_skew {
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
    fn count_pods(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) {
        state.write(self.name(), Preferred { domains: domains(pod, false, snapshot), weights: Vec::new() });
    }

    fn pod_changed(&self, state: &mut CycleState, pod: &PodInfo, _snapshot: &Snapshot, change: PodChange<'_>) {
        if let Some(Preferred { domains, .. }) = state.read_mut(self.name()) {
            add_change(domains, pod, false, change);
        }
    }

    /// A Pod counts more in a topology with many domains: upstream's `topologyNormalizingWeight`.
    fn pre_score(&self, state: &mut CycleState, pod: &PodInfo, feasible: &[&NodeInfo]) -> bool {
        let Some(Preferred { domains, weights }) = state.read_mut(self.name()) else { return false };
        if domains.is_empty() {
            return false;
        }
        let in_domains = || feasible.iter().copied().filter(|node| is_in_all_domains(domains, pod, false, node));
        let domain_count = |(constraint, domains): (&TopologySpread, &DomainSums)| match constraint.topology_key.as_str() {
            HOSTNAME => in_domains().count(),
            _ => domains.distinct(in_domains()),
        };
        *weights = constraints(pod, false).zip(&*domains).map(|of| (domain_count(of) as f64 + 2.0).ln()).collect();
        true
    }

    /// The more Pods the domains of the node have, the higher.
    fn score(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let Preferred { domains, weights } = state.read(self.name())?;
        let mut sum = 0.0;
        for ((constraint, domains), weight) in constraints(pod, false).zip(domains).zip(weights) {
            match domains.domain(node) {
                Some(domain) => sum += domains.sum(domain) as f64 * weight + (constraint.max_skew - 1) as f64,
                None if constraint.requires_label => return None,
                None => {}
            }
        }
        Some(sum.round() as i64)
    }

    fn normalization(&self) -> Normalization {
        Normalization::Emptiest
    }
}

#[cfg(test)]
mod tests;
