//! Keeps a Pod that names its node to that node.

use sched_framework::{ClusterEvent, CycleState, FilterPlugin, NodeInfo, Plugin, PodInfo, Verdict};

pub(crate) struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }
}

impl FilterPlugin for NodeName {
    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Verdict {
        Verdict::unless(pod.node_name.is_empty() || pod.node_name == node.name, "node(s) didn't match the requested node name")
    }

    fn helped_by(&self) -> &'static [ClusterEvent] {
        &[ClusterEvent::NodeAdded]
    }
}
