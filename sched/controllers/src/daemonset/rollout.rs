//! The rolling update of a DaemonSet: which old Pods go, or, when new Pods may run beside old ones, where new Pods start.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, RollingUpdateDaemonSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::plan::{NodePods, Plan, Snapshot};
use crate::meta;
use crate::percent::{self, Round};

fn is_rolling(set: &DaemonSet) -> bool {
    let strategy = set.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
    strategy.is_none_or(|strategy| strategy == "RollingUpdate")
}

fn rolling(set: &DaemonSet) -> Option<&RollingUpdateDaemonSet> {
    set.spec.update_strategy.as_ref().filter(|_| is_rolling(set))?.rolling_update.as_ref()
}

fn surge(set: &DaemonSet, nodes: i32) -> i32 {
    let surge = rolling(set).and_then(|rolling| rolling.max_surge.as_ref());
    surge.map_or(0, |surge| percent::scaled(surge, nodes, Round::Up))
}

/// Whether new Pods may run beside old ones.
pub fn allows_surge(set: &DaemonSet) -> bool {
    surge(set, 1) > 0
}

/// How many nodes may have an additional Pod, and how many may be without an available one.
fn fences(set: &DaemonSet, nodes: usize) -> (usize, usize) {
    let nodes = i32::try_from(nodes).unwrap_or(i32::MAX);
    let one = IntOrString::Int(1);
    let unavailable = rolling(set).and_then(|rolling| rolling.max_unavailable.as_ref()).unwrap_or(&one);
    let (surge, unavailable) = (surge(set, nodes), percent::scaled(unavailable, nodes, Round::Up));
    let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
    (usize::try_from(surge).unwrap_or(0), usize::try_from(unavailable).unwrap_or(0))
}

/// The Pods of a node that are not being deleted.
struct Pair<'a> {
    new: Option<&'a Arc<Pod>>,
    old: Option<&'a Arc<Pod>>,
}

/// `None` if there are several of one kind, which the next pass deletes.
fn pair<'a>(snapshot: &Snapshot<'_>, node_pods: &'a NodePods) -> Option<Pair<'a>> {
    let alive = node_pods.pods.iter().filter(|pod| !meta::is_deleting(&pod.metadata));
    let (new, old): (Vec<_>, Vec<_>) = alive.partition(|pod| snapshot.is_updated(pod));
    (new.len() <= 1 && old.len() <= 1).then(|| Pair { new: new.first().copied(), old: old.first().copied() })
}

/// Adds what the update needs.
pub fn update(snapshot: &Snapshot<'_>, plan: &mut Plan) {
    if !is_rolling(snapshot.set) {
        return;
    }
    let nodes = &snapshot.assignment.nodes;
    let wanted = nodes.iter().filter(|node_pods| node_pods.verdict.runs).count();
    let (max_surge, max_unavailable) = fences(snapshot.set, wanted);
    // Also the nodes that get no Pod but still have one.
    let used: Vec<&NodePods> = nodes.iter().filter(|node_pods| node_pods.verdict.runs || !node_pods.pods.is_empty()).collect();
    if max_surge == 0 {
        replace(snapshot, &used, max_unavailable, plan);
    } else {
        surge_to(snapshot, &used, max_surge, plan);
        leave(snapshot, &used, wanted, plan);
    }
}

/// Deletes old Pods: all that are not available, and others as long as fewer than `most` nodes are without an available Pod.
fn replace(snapshot: &Snapshot<'_>, used: &[&NodePods], most: usize, plan: &mut Plan) {
    let (mut unavailable, mut candidates) = (0_usize, Vec::new());
    for node_pods in used {
        match pair(snapshot, node_pods) {
            Some(Pair { new: None, old: Some(old) }) if snapshot.is_available(old) => candidates.push(Arc::clone(old)),
            Some(Pair { new: None, old: Some(old) }) => {
                plan.delete.push(Arc::clone(old));
                unavailable += 1;
            }
            Some(Pair { new: Some(new), old: None }) if snapshot.is_available(new) => {}
            _ => unavailable += 1,
        }
    }
    plan.delete.extend(candidates.into_iter().take(most.saturating_sub(unavailable)));
}

/// Starts new Pods: wherever the old one is not available, and on others as long as fewer than `most` nodes wait for their new
/// Pod. Deletes the old Pod where the new one is available.
fn surge_to(snapshot: &Snapshot<'_>, used: &[&NodePods], most: usize, plan: &mut Plan) {
    let (mut surging, mut candidates) = (0_usize, Vec::new());
    for node_pods in used {
        let runs = node_pods.verdict.runs;
        match pair(snapshot, node_pods) {
            None => surging += 1,
            Some(Pair { old: None, .. }) => {}
            Some(Pair { new: None, old: Some(old) }) if !runs && snapshot.is_available(old) => {}
            Some(Pair { new: None, old: Some(old) }) if !runs => plan.delete.push(Arc::clone(old)),
            Some(Pair { new: None, old: Some(old) }) if snapshot.is_available(old) => candidates.push(node_pods.node.clone()),
            Some(Pair { new: None, .. }) => plan.create.push(node_pods.node.clone()),
            Some(Pair { new: Some(new), old: Some(old) }) if snapshot.is_available(new) => plan.delete.push(Arc::clone(old)),
            Some(_) => surging += 1,
        }
    }
    plan.create.extend(candidates.into_iter().take(most.saturating_sub(surging)));
}

/// Deletes available old Pods of nodes that get no Pod any more, as long as the available Pods are more than the `wanted` ones:
/// whoever surges wants all of them at all times.
fn leave(snapshot: &Snapshot<'_>, used: &[&NodePods], wanted: usize, plan: &mut Plan) {
    let (mut available, mut leaving) = (0_usize, Vec::new());
    for node_pods in used {
        let Some(Pair { new, old }) = pair(snapshot, node_pods) else { continue };
        available += usize::from(old.or(new).is_some_and(|pod| snapshot.is_available(pod)));
        if let (None, Some(old)) = (new, old)
            && !node_pods.verdict.runs
            && snapshot.is_available(old)
        {
            leaving.push(Arc::clone(old));
        }
    }
    plan.delete.extend(leaving.into_iter().take(available.saturating_sub(wanted)));
}
