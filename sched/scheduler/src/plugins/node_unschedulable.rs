//! Keeps Pods off nodes that are cordoned, unless they tolerate that.

use k8s_openapi::api::core::v1::Taint;
use sched_framework::{ClusterEvent, CycleState, FilterPlugin, NodeInfo, Plugin, PodInfo, Verdict};

use super::taint_toleration::tolerates;

pub(crate) struct NodeUnschedulable;

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }
}

impl FilterPlugin for NodeUnschedulable {
    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Verdict {
        let taint = Taint { key: "node.kubernetes.io/unschedulable".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
        Verdict::unless(!node.unschedulable || tolerates(&pod.tolerations, &taint), "node(s) were unschedulable")
    }

    fn helped_by(&self) -> &'static [ClusterEvent] {
        &[ClusterEvent::NodeAdded, ClusterEvent::NodeTaints]
    }
}
