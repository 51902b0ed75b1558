//! The cycles of a Pod whose nodes extenders judge. The first one finds the feasible nodes. Extenders are called between the two, while
//! other Pods are scheduled. The second one sees the cluster as it is then: it chooses the best of the nodes that are still feasible,
//! or says why there is none. Neither waits for anything.

use std::sync::Arc;

use sched_framework::{ClusterEvent, CycleState, NodeInfo, PodInfo, Reason, Rejection, Scope, Snapshot, Status};

use super::search::Search;
use super::{Failure, Progress, begin, make_room, nominated_host};
use crate::diagnosis::{Diagnosis, FitError};
use crate::plugins::Profile;

/// The name that stands for all extenders among the plugins that rejected a Pod: upstream's `ExtenderName`.
const EXTENDER: &str = "Extender";
/// Any change may help a Pod that extenders rejected: nobody but the extender can say which.
const EXTENDER_EVENTS: &[ClusterEvent] = &[ClusterEvent::WildCard];

/// The nodes that the plugins allow.
#[derive(Debug)]
pub(crate) struct Offer {
    /// The node to which the Pod is nominated, if it is feasible. It goes before all others.
    pub nominated: Option<String>,
    /// The names of feasible nodes: as many as are enough, one at least.
    pub nodes: Vec<String>,
    /// Why the other nodes that were searched are not feasible.
    diagnosis: Diagnosis,
    /// The nodes' indexes in the diagnosis are those of this layout of the snapshot.
    layout: u64,
}

/// A node that an extender rejected, with its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejected {
    pub node: String,
    pub reason: Reason,
}

/// The first cycle: the feasible nodes, or why there is none and which Pods to preempt.
pub(crate) fn feasible_nodes(
    profile: &Profile,
    pod: &Arc<PodInfo>,
    snapshot: &Snapshot,
    progress: &mut Progress,
) -> Result<Offer, Box<Failure>> {
    let (nodes, mut diagnosis) = (snapshot.nodes.len(), Diagnosis::default());
    let mut state = begin(profile, pod, snapshot, progress)?;
    let mut search = Search::begin(profile, &mut state, pod, snapshot, progress);
    let feasible = search.feasible(&mut progress.start, &mut diagnosis);
    search.end(progress);
    let nominated = nominated_host(profile, &mut state, pod, snapshot);
    let nomination = match feasible.is_empty() {
        true => Some(make_room(profile, &mut state, pod, snapshot, &mut diagnosis, &mut progress.preemption_offset)),
        false => None,
    };
    progress.keep(profile, pod, snapshot, state);
    match nomination {
        Some(nomination) => Err(Box::new(Failure { error: FitError::Unschedulable { nodes, diagnosis }, nomination })),
        None => Ok(Offer { nominated, nodes: feasible, diagnosis, layout: snapshot.layout }),
    }
}

/// The second cycle, after extenders allowed nodes, each with the sum of their weighted scores: the best one. `None` when none of them
/// is feasible any more.
pub(crate) fn best_of(
    profile: &Profile,
    pod: &Arc<PodInfo>,
    snapshot: &Snapshot,
    progress: &mut Progress,
    allowed: &[(String, i64)],
) -> Option<String> {
    let mut state = progress.pre_filtered.pre_filter(profile, pod, snapshot).ok()?;
    let mut feasible = Vec::new();
    for (name, score) in allowed {
        if let Some(node) = snapshot.node(name)
            && profile.filters.filter_with_nominated(&mut state, pod, node, snapshot).is_ok()
        {
            feasible.push((node.as_ref(), *score));
        }
    }
    let best = best(profile, &mut state, pod, &feasible).map(|node| node.name.clone());
    progress.keep(profile, pod, snapshot, state);
    best
}

/// The node with the highest total of the plugins' scores and the extenders'; of several, the first one.
fn best<'n>(profile: &Profile, state: &mut CycleState, pod: &PodInfo, feasible: &[(&'n NodeInfo, i64)]) -> Option<&'n NodeInfo> {
    if let [(only, _)] = feasible {
        return Some(only);
    }
    let nodes: Vec<&NodeInfo> = feasible.iter().map(|(node, _)| *node).collect();
    let mut totals: Vec<i64> = feasible.iter().map(|(_, score)| *score).collect();
    for plugin in &profile.scores {
        let compared = if plugin.scope_for(state, pod) == Scope::Node { &[] } else { nodes.as_slice() };
        if plugin.pre_score(state, pod, compared) {
            let raw: Vec<_> = nodes.iter().map(|node| plugin.score(state, pod, node)).collect();
            let scores = plugin.normalization().scale(&raw);
            totals.iter_mut().zip(scores).for_each(|(total, score)| *total = total.saturating_add(score.saturating_mul(plugin.weight())));
        }
    }
    let highest = totals.iter().max()?;
    nodes.get(totals.iter().position(|total| total == highest)?).copied()
}

/// The second cycle, after extenders left no node: why, and which Pods to preempt. `None` when the Pod may fit on a node now on which
/// it did not in the first cycle: it is to be tried again.
///
/// Nodes that an extender rejected are no candidates for a preemption: the Pod fits on them without one. Upstream finds no victims there
/// either.
pub(crate) fn unschedulable(
    profile: &Profile,
    pod: &Arc<PodInfo>,
    snapshot: &Snapshot,
    progress: &mut Progress,
    (offer, rejected): (Offer, &[Rejected]),
) -> Option<Failure> {
    let Offer { mut diagnosis, layout, .. } = offer;
    if layout != snapshot.layout {
        return None;
    }
    let mut state = progress.pre_filtered.pre_filter(profile, pod, snapshot).ok()?;
    for node in diagnosis.resolvable.iter().filter_map(|index| snapshot.nodes.get(*index)) {
        if profile.filters.filter_with_nominated(&mut state, pod, node, snapshot).is_ok() {
            return None;
        }
    }
    for Rejected { node, reason } in rejected {
        if let Some(index) = snapshot.node_index.get(node) {
            let status = Status::UnschedulableAndUnresolvable(vec![reason.clone()]);
            diagnosis.add(*index, &Rejection { status, plugin: EXTENDER, events: EXTENDER_EVENTS });
        }
    }
    diagnosis.wait_for(EXTENDER, EXTENDER_EVENTS);
    let nomination = make_room(profile, &mut state, pod, snapshot, &mut diagnosis, &mut progress.preemption_offset);
    progress.keep(profile, pod, snapshot, state);
    Some(Failure { error: FitError::Unschedulable { nodes: snapshot.nodes.len(), diagnosis }, nomination })
}

/// Whether the Pod fits on the node of that name now, without a preemption.
pub(crate) fn fits(profile: &Profile, pod: &Arc<PodInfo>, snapshot: &Snapshot, progress: &mut Progress, node: &str) -> bool {
    let Ok(mut state) = progress.pre_filtered.pre_filter(profile, pod, snapshot) else { return false };
    let fits = snapshot.node(node).is_some_and(|node| profile.filters.filter_with_nominated(&mut state, pod, node, snapshot).is_ok());
    progress.keep(profile, pod, snapshot, state);
    fits
}

#[cfg(test)]
mod tests;
