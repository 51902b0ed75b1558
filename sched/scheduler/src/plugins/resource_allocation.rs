//! How much of a resource a node has, and how much of it Pods request there: what the scores of resources depend on. Upstream's
//! `resourceAllocationScorer` is the model.

use sched_framework::{CycleState, NodeInfo, Resource, Scope, Snapshot};

use super::dynamic_resources::{DeviceCounts, SelectorCache};

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

/// The devices that back extended resources, for the scores of one plugin.
pub(super) struct DeviceAmounts {
    /// The name of the plugin.
    plugin: &'static str,
    selectors: SelectorCache,
}

impl DeviceAmounts {
    pub fn new(plugin: &'static str) -> Self {
        Self { plugin, selectors: SelectorCache::default() }
    }

    /// Reads the devices if they back one of these resources and the Pod wants it.
    pub fn read<'r>(&self, state: &mut CycleState, snapshot: &Snapshot, resources: impl Iterator<Item = &'r str>) {
        let counts = DeviceCounts::of_cycle(state, &snapshot.dra, resources);
        if counts.is_some() || self.counts(state).is_some() {
            state.write(self.plugin, counts);
        }
    }

    /// Counts the devices of the nodes that are compared.
    pub fn count(&self, state: &mut CycleState, nodes: &[&NodeInfo]) {
        if let Some(counts) = state.read_mut::<Option<DeviceCounts>>(self.plugin).and_then(Option::as_mut) {
            counts.count(&self.selectors, nodes);
        }
    }

    /// Devices are allocated and freed without a change of the node.
    pub fn scope(&self, state: &CycleState) -> Scope {
        if self.counts(state).is_some() { Scope::Cluster } else { Scope::Node }
    }

    /// The amounts of a resource that the node does not have itself.
    pub fn amounts(&self, state: &CycleState, resource: &str, node: &NodeInfo, wants: &Resource) -> Option<Amounts> {
        let (counts, wanted) = (self.counts(state)?, wants.get(resource));
        if wanted > 0 { counts.amounts(resource, node, wanted) } else { None }
    }

    fn counts<'s>(&self, state: &'s CycleState) -> Option<&'s DeviceCounts> {
        state.read::<Option<DeviceCounts>>(self.plugin)?.as_ref()
    }
}

fn is_scalar(resource: &str) -> bool {
    !matches!(resource, "cpu" | "memory" | "ephemeral-storage")
}
