//! How much of a resource a node has, and how much of it Pods request there: what the scores of resources depend on. Upstream's
//! `resourceAllocationScorer` is the model.

use sched_framework::{NodeInfo, Resource};

/// The amounts of one resource, in the unit of the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Amounts {
    /// The amount that Pods may request in total: more than 0.
    pub allocatable: i64,
    /// The amount that the Pods of the node and the new Pod request.
    pub requested: i64,
}

/// The amounts of a resource on the node; `None` when the node does not have the resource, or when it is not CPU, memory or storage
/// and the Pod does not want it. `used` is what the Pods of the node request, `wants` what the new Pod requests.
pub(super) fn amounts(resource: &str, node: &NodeInfo, used: &Resource, wants: &Resource) -> Option<Amounts> {
    let (allocatable, wanted) = (node.allocatable.get(resource), wants.get(resource));
    if allocatable <= 0 || wanted == 0 && is_scalar(resource) {
        return None;
    }
    Some(Amounts { allocatable, requested: used.get(resource).saturating_add(wanted) })
}

fn is_scalar(resource: &str) -> bool {
    !matches!(resource, "cpu" | "memory" | "ephemeral-storage")
}
