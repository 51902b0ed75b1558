//! Rules out cordoned nodes, unless the Pod tolerates the taint of a cordoned node.

use k8s_openapi::api::core::v1::Taint;
use sched_framework::{ClusterEvent, CycleState, FilterPlugin, NodeInfo, Plugin, PodInfo, Status, tolerates};

pub(crate) struct NodeUnschedulable;

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }
}

impl FilterPlugin for NodeUnschedulable {
    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if !node.unschedulable {
            return Status::Success;
        }
        let taint = Taint { key: "node.kubernetes.io/unschedulable".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
        Status::unless(tolerates(&pod.tolerations, &taint), "node(s) were unschedulable")
    }

    fn events_to_register(&self) -> &'static [ClusterEvent] {
        &[ClusterEvent::NodeAdd, ClusterEvent::UpdateNodeTaint]
    }
}
