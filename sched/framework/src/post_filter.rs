//! The extension point of plugins that make room for a Pod.

use std::sync::Arc;

use crate::{CycleState, Filters, Plugin, PodInfo, Snapshot};

#[cfg(doc)]
use crate::Status;

/// Pods that have to go so that another Pod fits on their node.
#[derive(Clone, Debug)]
pub struct Preemption {
    /// The name of the node, to which the Pod is nominated.
    pub node: String,
    /// The victims, the most important one first.
    pub victims: Vec<Arc<PodInfo>>,
    /// The number of victims whose disruption their budget does not allow.
    pub violations: usize,
}

/// What a [`PostFilterPlugin`] found.
#[derive(Clone, Debug)]
pub enum PostFilterResult {
    /// The Pod will fit once the Pods of one of these preemptions are gone.
    Preempt {
        /// The preemption that disrupts the least.
        best: Arc<Preemption>,
        /// The others that were compared with it, in no order.
        others: Vec<Arc<Preemption>>,
    },
    /// Nothing helps now. The text tells users why. A Pod that is nominated to a node remains so only with
    /// `stays_nominated`.
    Unschedulable {
        /// Why.
        message: String,
        /// Whether the Pod waits for its nominated node.
        stays_nominated: bool,
    },
}

/// Makes room for a Pod that no node is feasible for.
pub trait PostFilterPlugin: Plugin {
    /// The search begins at another node for each `offset`, so that the Pods of a workload do not all try the same nodes.
    /// `resolvable` are the indexes in the snapshot of the nodes that the Pod may fit on when other Pods leave: filters ruled
    /// them out with [`Status::Unschedulable`]. The plugin restores the state that it changes.
    fn post_filter(
        &self,
        filters: &Filters,
        state: &mut CycleState,
        pod: &PodInfo,
        snapshot: &Snapshot,
        resolvable: &[usize],
        offset: usize,
    ) -> PostFilterResult;
}
