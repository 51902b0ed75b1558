//! A Pod that names a node runs on that node only.

use sched_framework::{ClusterEvent, CycleState, FilterPlugin, NodeInfo, Plugin, PodInfo, Status};

pub(crate) struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }
}

impl FilterPlugin for NodeName {
    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        Status::unless(pod.node_name.is_empty() || pod.node_name == node.name, "node(s) didn't match the requested node name")
    }

    fn events_to_register(&self) -> &'static [ClusterEvent] {
        &[ClusterEvent::NodeAdd]
    }
}
