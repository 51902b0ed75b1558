//! The extension points between the choice of a node and the end of the binding: Reserve, PreBind and PostBind. Only plugins that have a
//! part in the Pod are called, so that a Pod without claims costs no more than the question.

use std::pin::Pin;
use std::sync::Arc;

use crate::{ClusterEvent, CycleState, Plugin, PodInfo, Reason, Snapshot};

/// Why a Pod is not bound to the node that was chosen. The Pod goes back to the scheduling queue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The Pod does not fit on the node any more.
    #[error("{0}")]
    Unschedulable(Reason),
    /// The plugin failed.
    #[error("{0}")]
    Error(Reason),
}

/// The work of a plugin before a binding. It may do I/O, ends within a time of the plugin's own, and may be dropped at any moment.
pub type PreBinding = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send>>;

/// What the plugins of Reserve, PreBind and PostBind have in common.
pub trait BindingPlugin: Plugin {
    /// Whether the plugin has something to do for the Pod. The scheduler calls no other method of a plugin that has not.
    fn has_part_in(&self, pod: &PodInfo) -> bool;
}

/// Stores what a Pod will use, so that the next cycles do not give it to other Pods: upstream's `ReservePlugin`.
pub trait ReservePlugin: BindingPlugin {
    /// Stores in the snapshot what the Pod will use on the node, after the Pod was assumed there. The state is that of the Pod's cycle;
    /// what the plugin writes to it is there for the other methods. It does no I/O. After an error the Pod is not bound, and
    /// [`ReservePlugin::unreserve`] is called.
    ///
    /// # Errors
    /// When the Pod cannot be bound to the node.
    fn reserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str, snapshot: &mut Snapshot) -> Result<(), Refusal>;

    /// Takes [`ReservePlugin::reserve`] back. The scheduler calls it for all plugins that have a part in the Pod, in the reverse order, also
    /// for those that reserved nothing. Returns the events that may help other Pods: what they wait for may be free.
    fn unreserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str, snapshot: &mut Snapshot) -> Vec<ClusterEvent>;
}

/// Writes what must be written before the Pod is bound: upstream's `PreBindPlugin`.
pub trait PreBindPlugin: BindingPlugin {
    /// The work for the Pod; `None` when there is nothing to do (upstream's `PreBindPreFlight`). The method itself does no I/O, and the
    /// work begins when it is polled: work that is dropped before has done nothing. An error of the work takes the Pod's reservations
    /// back.
    fn pre_bind(&self, state: &CycleState, pod: &Arc<PodInfo>, node: &str) -> Option<PreBinding>;

    /// What is to be written for a Pod that is not bound after all, after [`ReservePlugin::unreserve`]: the part of upstream's `Unreserve`
    /// that does I/O. `None` when there is nothing. The Pod is not tried again before this work has ended.
    fn take_back(&self, _state: &CycleState, _pod: &Arc<PodInfo>) -> Option<PreBinding> {
        None
    }

    /// What is to be written for a Pod that no node is feasible for, as PostFilter of the plugin decided; `None` when there is nothing.
    /// The scheduler does not ask when Pods are preempted for the Pod.
    fn make_room(&self, _state: &CycleState, _pod: &Arc<PodInfo>) -> Option<PreBinding> {
        None
    }
}

/// Learns that a Pod is bound: upstream's `PostBindPlugin`.
pub trait PostBindPlugin: BindingPlugin {
    /// The Pod is bound to the node. It does no I/O, and nothing depends on it.
    fn post_bind(&self, state: &CycleState, pod: &PodInfo, node: &str);
}
