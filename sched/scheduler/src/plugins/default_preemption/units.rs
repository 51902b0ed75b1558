//! What is preempted together: one Pod, or all Pods of a group whose disruption mode is `all`. Upstream's `Victim` is the model.

use std::cmp::{Ordering, Reverse};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use sched_framework::{PodInfo, Snapshot};

use super::{by_importance, started};

/// Pods that are preempted together.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    /// The Pods, the most important one first, each with the index of its node in the snapshot.
    pub pods: Vec<(Arc<PodInfo>, usize)>,
    /// The highest priority of them.
    pub priority: i32,
    is_group: bool,
}

impl Unit {
    fn of_pod(pod: &Arc<PodInfo>, node: usize) -> Self {
        Self { pods: vec![(Arc::clone(pod), node)], priority: pod.priority, is_group: false }
    }

    /// The Pods.
    pub fn pods(&self) -> Vec<&PodInfo> {
        self.pods.iter().map(|(pod, _)| pod.as_ref()).collect()
    }

    /// The order of units, the most important one first: upstream's `MoreImportantVictim`. Of those with the same priority, a group goes
    /// before a Pod, and a larger group before a smaller one.
    pub fn by_importance(one: &Self, other: &Self) -> Ordering {
        let earliest = |unit: &Self| unit.pods.iter().map(|(pod, _)| started(pod)).min().unwrap_or(Timestamp::MAX);
        let key = |unit: &Self| (Reverse(unit.priority), !unit.is_group, Reverse(unit.pods.len()), earliest(unit));
        key(one).cmp(&key(other)).then_with(|| match (one.pods.first(), other.pods.first()) {
            (Some((one, _)), Some((other, _))) => by_importance(one, other),
            _ => Ordering::Equal,
        })
    }
}

/// What the end of these Pods disrupts of groups: groups that are preempted as a whole, and single Pods of other groups.
pub(crate) fn group_disruptions(victims: &[Arc<PodInfo>], snapshot: &Snapshot) -> usize {
    let groups: Vec<_> = victims.iter().filter_map(|pod| pod.pod_group.as_ref()).collect();
    let (whole, others): (Vec<_>, Vec<_>) = groups.into_iter().partition(|key| snapshot.indivisible_groups.contains(*key));
    whole.into_iter().collect::<HashSet<_>>().len() + others.len()
}

/// The Pods on nodes of the groups whose Pods are preempted together, by the key of the group.
pub(crate) struct IndivisibleGroups(HashMap<Arc<str>, Unit>);

impl IndivisibleGroups {
    /// Those Pods that are `counted`.
    pub fn new(snapshot: &Snapshot, counted: impl Fn(&PodInfo) -> bool) -> Self {
        let mut groups: HashMap<Arc<str>, Unit> = HashMap::new();
        if snapshot.indivisible_groups.is_empty() {
            return Self(groups);
        }
        for (pod, node) in snapshot.nodes.iter().flat_map(|node| node.pods.iter().map(move |pod| (pod, node.index))) {
            if let Some(key) = pod.pod_group.as_ref().filter(|key| snapshot.indivisible_groups.contains(*key) && counted(pod)) {
                let unit = groups.entry(Arc::clone(key)).or_insert_with(|| Unit { pods: Vec::new(), priority: i32::MIN, is_group: true });
                unit.priority = unit.priority.max(pod.priority);
                unit.pods.push((Arc::clone(pod), node));
            }
        }
        groups.values_mut().for_each(|unit| unit.pods.sort_by(|(one, _), (other, _)| by_importance(one, other)));
        Self(groups)
    }

    /// The units of these Pods, each Pod with the index of its node, that have a lower priority.
    pub fn units_below<'p>(&self, priority: i32, pods: impl Iterator<Item = (&'p Arc<PodInfo>, usize)>) -> Vec<Unit> {
        let (mut units, mut counted) = (Vec::new(), HashSet::<&Arc<str>>::new());
        for (pod, node) in pods {
            match pod.pod_group.as_ref().and_then(|key| self.0.get_key_value(key)) {
                Some((key, unit)) => units.extend((unit.priority < priority && counted.insert(key)).then(|| unit.clone())),
                None => units.extend((pod.priority < priority).then(|| Unit::of_pod(pod, node))),
            }
        }
        units
    }
}
