//! Rules out nodes where another Pod uses a host port of the Pod.

use sched_framework::{ClusterEvent, CycleState, FilterPlugin, NodeInfo, Plugin, PodInfo, Status};

pub(crate) struct NodePorts;

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }
}

impl FilterPlugin for NodePorts {
    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if pod.ports.iter().any(|wanted| node.used_ports.iter().any(|used| used.conflicts(wanted))) {
            return Status::Unschedulable(vec!["node(s) didn't have free ports for the requested pod ports".into()]);
        }
        Status::Success
    }

    fn events_to_register(&self) -> &'static [ClusterEvent] {
        &[ClusterEvent::NodeAdd, ClusterEvent::AssignedPodDelete]
    }
}
