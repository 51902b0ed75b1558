//! Keeps two Pods from one host port.

use sched_framework::{ClusterEvent, CycleState, FilterPlugin, NodeInfo, Plugin, PodInfo, Verdict};

pub(crate) struct NodePorts;

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }
}

impl FilterPlugin for NodePorts {
    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Verdict {
        if pod.ports.iter().any(|wanted| node.ports.iter().any(|held| held.conflicts(wanted))) {
            return Verdict::Unschedulable(vec!["node(s) didn't have free ports for the requested pod ports".to_owned()]);
        }
        Verdict::Fits
    }

    fn helped_by(&self) -> &'static [ClusterEvent] {
        &[ClusterEvent::NodeAdded, ClusterEvent::PodGone]
    }
}
