//! Rules out nodes with fewer free resources than the Pod requests, and prefers the nodes with the largest free share
//! (`LeastAllocated`).

use sched_framework::{ClusterEvent, CycleState, FilterPlugin, NodeInfo, Plugin, PodInfo, Reason, SCORE_MAX, ScorePlugin, Status};

pub(crate) struct NodeResourcesFit;

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }
}

impl FilterPlugin for NodeResourcesFit {
    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let mut reasons: Vec<Reason> = Vec::new();
        if node.pods.len() >= node.pods_max {
            reasons.push("Too many pods".into());
        }
        let insufficient = node.allocatable.insufficient(&node.requested, &pod.requests);
        reasons.extend(insufficient.iter().map(|resource| format!("Insufficient {resource}").into()));
        match (reasons.is_empty(), node.allocatable.could_hold(&pod.requests)) {
            (true, _) => Status::Success,
            (false, true) => Status::Unschedulable(reasons),
            (false, false) => Status::UnschedulableAndUnresolvable(reasons),
        }
    }

    fn events_to_register(&self) -> &'static [ClusterEvent] {
        &[ClusterEvent::NodeAdd, ClusterEvent::UpdateNodeAllocatable, ClusterEvent::AssignedPodDelete, ClusterEvent::UpdatePodScaleDown]
    }
}

impl ScorePlugin for NodeResourcesFit {
    fn score(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let free = |has: i64, used: i64| match i128::from(has) - i128::from(used) {
            left if has <= 0 || left < 0 => 0,
            left => i64::try_from(left * i128::from(SCORE_MAX) / i128::from(has)).unwrap_or(SCORE_MAX),
        };
        let (has, used, wants) = (&node.allocatable, &node.non_zero_requested, &pod.non_zero_requests);
        let cpu = free(has.cpu_milli, used.cpu_milli.saturating_add(wants.cpu_milli));
        let memory = free(has.memory_bytes / 1024, used.memory_bytes.saturating_add(wants.memory_bytes) / 1024);
        Some((cpu + memory) / 2)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::plugins::fixtures::{node, pod, requesting};

    fn verdict(pod: &PodInfo, node: &NodeInfo) -> Status {
        NodeResourcesFit.filter(&CycleState::default(), pod, node)
    }

    #[test]
    fn a_node_holds_what_it_has_and_no_more() {
        let mut full = node("n", json!({"status": {"allocatable": {"pods": "3"}}}));
        full.add_pod(Arc::new(requesting("a", "3", "1Gi")));
        for (pod, wanted) in [
            (requesting("p", "1", "1Gi"), Status::Success),
            (requesting("p", "1001m", "1Gi"), Status::Unschedulable(vec!["Insufficient cpu".into()])),
            (requesting("p", "2", "8Gi"), Status::Unschedulable(vec!["Insufficient cpu".into(), "Insufficient memory".into()])),
        ] {
            assert_eq!(verdict(&pod, &full), wanted, "{:?}", pod.requests);
        }
        full.add_pod(Arc::new(requesting("b", "0", "0")));
        full.add_pod(Arc::new(requesting("c", "0", "0")));
        assert_eq!(verdict(&requesting("p", "0", "0"), &full), Status::Unschedulable(vec!["Too many pods".into()]));
    }

    #[test]
    fn overhead_sidecars_and_init_containers_count() {
        let container = |cpu: &str| json!({"name": cpu, "resources": {"requests": {"cpu": cpu}}});
        let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "300m"}}});
        for (spec, wanted) in [
            (json!({"containers": [container("1"), container("500m")]}), 1500),
            (json!({"containers": [container("1")], "overhead": {"cpu": "250m"}}), 1250),
            (json!({"containers": [container("1")], "initContainers": [container("3")]}), 3000),
            (json!({"containers": [container("1")], "initContainers": [sidecar, container("2")]}), 2300),
            (json!({"containers": [container("3")], "initContainers": [sidecar, container("2")]}), 3300),
        ] {
            assert_eq!(pod("p", spec.clone()).requests.cpu_milli, wanted, "{spec}");
        }
    }

    /// A node reports its own resources, so the numbers may have any value.
    #[test]
    fn a_node_with_the_largest_amounts_scores_below_the_maximum() {
        let huge = node("huge", json!({"status": {"allocatable": {"cpu": "9223372036854775807m", "memory": "8Ei"}}}));
        assert_eq!(NodeResourcesFit.score(&CycleState::default(), &requesting("p", "1", "1Gi"), &huge), Some(SCORE_MAX - 1));
    }

    #[test]
    fn the_emptier_node_scores_higher() {
        let mut busy = node("busy", json!({}));
        busy.add_pod(Arc::new(requesting("a", "2", "4Gi")));
        let score = |node: &NodeInfo| NodeResourcesFit.score(&CycleState::default(), &requesting("p", "1", "1Gi"), node);
        assert_eq!((score(&node("idle", json!({}))), score(&busy)), (Some(81), Some(31)));
    }
}
