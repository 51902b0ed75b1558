//! Affinity and anti-affinity between Pods: required terms, also those of the Pods on nodes, rule nodes out; preferred terms
//! add to the score.

use sched_framework::{
    ClusterEvent, CycleState, FilterPlugin, NamespaceLabels, NodeInfo, Normalization, Plugin, PodChange, PodInfo, Scope, ScorePlugin,
    Snapshot, Status,
};

use super::topology::TopologySums;
use crate::config::InterPodAffinityArgs;

pub(crate) struct InterPodAffinity {
    args: InterPodAffinityArgs,
}

/// The Pods that matter to the Pod of the cycle, by topology domain.
#[derive(Debug, Default)]
struct Required {
    /// Pods on nodes whose anti-affinity selects the Pod.
    repelled: TopologySums,
    /// Pods that all of the Pod's affinity terms select.
    attracted: TopologySums,
    /// Pods that one of the Pod's anti-affinity terms selects.
    repelling: TopologySums,
    /// Whether the Pod meets all of its affinity terms itself: the first of a group may go anywhere.
    selects_itself: bool,
}

/// The preferences of the Pod and of the Pods on nodes.
#[derive(Debug, Default)]
struct Preferred(TopologySums);

impl InterPodAffinity {
    pub(super) fn new(args: &InterPodAffinityArgs) -> Self {
        Self { args: args.clone() }
    }

    /// Whether the plugin scores nodes for the Pod.
    fn prefers(&self, pod: &PodInfo) -> bool {
        !self.args.ignore_preferred_terms_of_existing_pods || !pod.pod_affinity.preferred.is_empty()
    }

    fn required_weight(&self) -> i64 {
        i64::from(self.args.hard_pod_affinity_weight)
    }
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        "InterPodAffinity"
    }

    fn scope(&self) -> Scope {
        Scope::Cluster
    }
}

/// Calls `visit` with each Pod on a node, and its node.
fn for_each_pod(snapshot: &Snapshot, visit: &mut dyn FnMut(&PodInfo, &NodeInfo)) {
    snapshot.nodes.iter().for_each(|node| node.pods.iter().for_each(|pod| visit(pod, node)));
}

/// The same for the Pods that have terms.
fn for_each_pod_with_affinity(snapshot: &Snapshot, visit: &mut dyn FnMut(&PodInfo, &NodeInfo)) {
    for (pod, node) in snapshot.pods_with_affinity.values() {
        if let Some(node) = snapshot.node(node) {
            visit(pod, node);
        }
    }
}

impl Required {
    fn new(pod: &PodInfo, namespaces: &NamespaceLabels) -> Self {
        Self { selects_itself: meets_all(pod, pod, namespaces), ..Self::default() }
    }

    /// Adds the Pods on nodes with an anti-affinity that selects the Pod.
    fn add_repelled(&mut self, pod: &PodInfo, change: PodChange<'_>, namespaces: &NamespaceLabels) {
        for term in change.pod.pod_affinity.anti_affinity.iter().filter(|term| pod.is_selected_by(term, namespaces)) {
            self.repelled.add(&term.topology_key, &change.node.labels, change.number);
        }
    }

    /// Adds the Pods on nodes that the Pod's terms select.
    fn add_selected(&mut self, pod: &PodInfo, change: PodChange<'_>, namespaces: &NamespaceLabels) {
        let own = &pod.pod_affinity;
        if meets_all(pod, change.pod, namespaces) {
            own.affinity.iter().for_each(|term| self.attracted.add(&term.topology_key, &change.node.labels, change.number));
        }
        for term in own.anti_affinity.iter().filter(|term| change.pod.is_selected_by(term, namespaces)) {
            self.repelling.add(&term.topology_key, &change.node.labels, change.number);
        }
    }
}

impl Preferred {
    /// Adds what the terms of Pods on nodes say of the Pod. A required term counts `required_weight`.
    fn add_others(&mut self, pod: &PodInfo, change: PodChange<'_>, namespaces: &NamespaceLabels, required_weight: i64) {
        let terms = &change.pod.pod_affinity;
        let required = terms.affinity.iter().map(|term| (term, required_weight)).filter(|(_, weight)| *weight > 0);
        let preferred = terms.preferred.iter().map(|(term, weight)| (term, *weight));
        for (term, weight) in required.chain(preferred).filter(|(term, _)| pod.is_selected_by(term, namespaces)) {
            self.0.add(&term.topology_key, &change.node.labels, weight * change.number);
        }
    }

    /// Adds what the Pod's own terms say of Pods on nodes.
    fn add_own(&mut self, pod: &PodInfo, change: PodChange<'_>, namespaces: &NamespaceLabels) {
        for (term, weight) in pod.pod_affinity.preferred.iter().filter(|(term, _)| change.pod.is_selected_by(term, namespaces)) {
            self.0.add(&term.topology_key, &change.node.labels, *weight * change.number);
        }
    }
}

/// Whether the Pod has required affinity and all of its terms select the other Pod.
fn meets_all(pod: &PodInfo, other: &PodInfo, namespaces: &NamespaceLabels) -> bool {
    let terms = &pod.pod_affinity.affinity;
    !terms.is_empty() && terms.iter().all(|term| other.is_selected_by(term, namespaces))
}

impl FilterPlugin for InterPodAffinity {
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) -> Status {
        let (own, namespaces) = (&pod.pod_affinity, &snapshot.namespaces);
        let mut required = Required::new(pod, namespaces);
        for_each_pod_with_affinity(snapshot, &mut |other, node| required.add_repelled(pod, PodChange::added(other, node), namespaces));
        if !own.affinity.is_empty() || !own.anti_affinity.is_empty() {
            for_each_pod(snapshot, &mut |other, node| required.add_selected(pod, PodChange::added(other, node), namespaces));
        }
        state.write(self.name(), required);
        Status::Success
    }

    fn pod_changed(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot, change: PodChange<'_>) {
        if let Some(required) = state.read_mut::<Required>(self.name()) {
            required.add_repelled(pod, change, &snapshot.namespaces);
            required.add_selected(pod, change, &snapshot.namespaces);
        }
    }

    fn may_reject(&self, state: &CycleState, pod: &PodInfo) -> bool {
        let own = &pod.pod_affinity;
        let is_repelled = state.read::<Required>(self.name()).is_some_and(|required| !required.repelled.is_empty());
        is_repelled || !own.affinity.is_empty() || !own.anti_affinity.is_empty()
    }

    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let Some(required) = state.read::<Required>(self.name()) else { return Status::Success };
        let (own, labels) = (&pod.pod_affinity, &node.labels);
        let is_in_domains = own.affinity.iter().all(|term| labels.contains_key(&term.topology_key));
        let follows = own.affinity.iter().all(|term| required.attracted.get(&term.topology_key, labels) > 0);
        let is_first = required.attracted.is_empty() && required.selects_itself;
        if !is_in_domains || !(follows || is_first) {
            return Status::UnschedulableAndUnresolvable(vec!["node(s) didn't match pod affinity rules".into()]);
        }
        if own.anti_affinity.iter().any(|term| required.repelling.get(&term.topology_key, labels) > 0) {
            return Status::Unschedulable(vec!["node(s) didn't match pod anti-affinity rules".into()]);
        }
        if required.repelled.of_node(labels).any(|sum| sum > 0) {
            return Status::Unschedulable(vec!["node(s) didn't satisfy existing pods anti-affinity rules".into()]);
        }
        Status::Success
    }

    fn events_to_register(&self) -> &'static [ClusterEvent] {
        &[
            ClusterEvent::NodeAdd,
            ClusterEvent::UpdateNodeLabel,
            ClusterEvent::AssignedPodAdd,
            ClusterEvent::UpdateAssignedPodLabel,
            ClusterEvent::AssignedPodDelete,
        ]
    }
}

impl ScorePlugin for InterPodAffinity {
    fn count_pods(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) {
        if !self.prefers(pod) {
            return;
        }
        let (mut preferred, namespaces, weight) = (Preferred::default(), &snapshot.namespaces, self.required_weight());
        for_each_pod_with_affinity(snapshot, &mut |other, node| {
            preferred.add_others(pod, PodChange::added(other, node), namespaces, weight);
        });
        if !pod.pod_affinity.preferred.is_empty() {
            for_each_pod(snapshot, &mut |other, node| preferred.add_own(pod, PodChange::added(other, node), namespaces));
        }
        state.write(self.name(), preferred);
    }

    fn pod_changed(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot, change: PodChange<'_>) {
        if let Some(preferred) = state.read_mut::<Preferred>(self.name()) {
            preferred.add_others(pod, change, &snapshot.namespaces, self.required_weight());
            preferred.add_own(pod, change, &snapshot.namespaces);
        }
    }

    fn pre_score(&self, state: &mut CycleState, _pod: &PodInfo, _feasible: &[&NodeInfo]) -> bool {
        state.read::<Preferred>(self.name()).is_some_and(|Preferred(sums)| !sums.is_empty())
    }

    fn score(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        Some(state.read::<Preferred>(self.name())?.0.of_node(&node.labels).sum())
    }

    fn normalization(&self) -> Normalization {
        Normalization::Range
    }
}

#[cfg(test)]
mod tests;
