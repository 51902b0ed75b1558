//! Rules out nodes with fewer free resources than the Pod requests, and prefers the nodes with the largest free share
//! (`LeastAllocated`), or as the scoring strategy says.

use std::borrow::Cow;

use sched_framework::{
    ClusterEvent, CycleState, FilterPlugin, NodeInfo, Plugin, PodInfo, Reason, Resource, Scope, ScorePlugin, Snapshot, Status,
    is_extended_resource,
};

use super::dynamic_resources::resources_of_devices;
use super::resource_allocation::{DeviceAmounts, amounts};
use super::scoring_strategy::ScoringStrategy;
use crate::config::NodeResourcesFitArgs;

const NAME: &str = "NodeResourcesFit";

pub(crate) struct NodeResourcesFit {
    /// Extended resources that a node need not have.
    ignored_resources: Vec<String>,
    /// The domains of such resources.
    ignored_resource_groups: Vec<String>,
    strategy: ScoringStrategy,
    devices: DeviceAmounts,
}

impl NodeResourcesFit {
    pub(super) fn new(args: &NodeResourcesFitArgs) -> Self {
        Self {
            ignored_resources: args.ignored_resources.clone(),
            ignored_resource_groups: args.ignored_resource_groups.clone(),
            strategy: ScoringStrategy::new(args.strategy(), args.resources()),
            devices: DeviceAmounts::new(NAME),
        }
    }

    fn ignores(&self, resource: &str) -> bool {
        let domain = resource.split('/').next().unwrap_or_default();
        let is_named = self.ignored_resources.iter().any(|ignored| ignored == resource);
        (is_named || self.ignored_resource_groups.iter().any(|group| group == domain)) && is_extended_resource(resource)
    }

    /// What the node must have. A resource that the node does not have itself is left to `DynamicResources` if that plugin runs and
    /// devices back the resource.
    fn required<'p>(&self, state: &CycleState, pod: &'p PodInfo, node: &NodeInfo) -> Cow<'p, Resource> {
        let backed = resources_of_devices(state);
        let is_left = |resource: &str| backed.is_some_and(|classes| classes.contains_key(resource)) && node.allocatable.get(resource) == 0;
        let is_not_required = |resource: &str| self.ignores(resource) || is_left(resource);
        if !pod.requests.scalar.keys().any(|resource| is_not_required(resource)) {
            return Cow::Borrowed(&pod.requests);
        }
        let mut required = pod.requests.clone();
        required.scalar.retain(|resource, _| !is_not_required(resource));
        Cow::Owned(required)
    }
}

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        NAME
    }
}

impl FilterPlugin for NodeResourcesFit {
    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let mut reasons: Vec<Reason> = Vec::new();
        if node.pods.len() >= node.pods_max {
            reasons.push("Too many pods".into());
        }
        let required = self.required(state, pod, node);
        let insufficient = node.allocatable.insufficient(&node.requested, &required);
        reasons.extend(insufficient.iter().map(|resource| format!("Insufficient {resource}").into()));
        match (reasons.is_empty(), node.allocatable.could_hold(&required)) {
            (true, _) => Status::Success,
            (false, true) => Status::Unschedulable(reasons),
            (false, false) => Status::UnschedulableAndUnresolvable(reasons),
        }
    }

    fn events_to_register(&self) -> &'static [ClusterEvent] {
        &[
            ClusterEvent::NodeAdd,
            ClusterEvent::UpdateNodeAllocatable,
            ClusterEvent::AssignedPodDelete,
            ClusterEvent::UpdatePodScaleDown,
            // A class may back the extended resource that the node lacks.
            ClusterEvent::DeviceClassUpdate,
        ]
    }
}

impl ScorePlugin for NodeResourcesFit {
    fn read_snapshot(&self, state: &mut CycleState, _pod: &PodInfo, snapshot: &Snapshot) {
        self.devices.read(state, snapshot, self.strategy.resources());
    }

    fn pre_score(&self, state: &mut CycleState, _pod: &PodInfo, feasible: &[&NodeInfo]) -> bool {
        self.devices.count(state, feasible);
        true
    }

    fn scope_for(&self, state: &CycleState, _pod: &PodInfo) -> Scope {
        self.devices.scope(state)
    }

    fn score(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let (used, wants) = (&node.non_zero_requested, &pod.non_zero_requests);
        let of_devices = |resource: &str| self.devices.amounts(state, resource, node, wants);
        Some(self.strategy.score(|resource| amounts(resource, node, used, wants).or_else(|| of_devices(resource))))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sched_framework::{SCORE_MAX, Snapshot};
    use serde_json::json;

    use super::*;
    use crate::plugins::dynamic_resources::DynamicResources;
    use crate::plugins::fixtures::{arguments, node, pod, requesting};

    fn plugin() -> NodeResourcesFit {
        NodeResourcesFit::new(&NodeResourcesFitArgs::default())
    }

    fn verdict(pod: &PodInfo, node: &NodeInfo) -> Status {
        plugin().filter(&CycleState::default(), pod, node)
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

    #[test]
    fn extended_resources_can_be_ignored() {
        let container = json!({"name": "c", "resources": {"requests": {"example.com/gpu": "1", "example.org/nic": "1", "cpu": "1"}}});
        let wanting = pod("p", json!({"containers": [container]}));
        let reasons = |args: serde_json::Value| {
            let plugin = NodeResourcesFit::new(&arguments("NodeResourcesFit", &args).node_resources_fit);
            match plugin.filter(&CycleState::default(), &wanting, &node("n", json!({}))) {
                Status::Success => String::new(),
                Status::Unschedulable(reasons) | Status::UnschedulableAndUnresolvable(reasons) => reasons.join(", "),
            }
        };
        let (gpu, nic) = ("Insufficient example.com/gpu", "Insufficient example.org/nic");
        assert_eq!(reasons(json!({})), format!("{gpu}, {nic}"));
        assert_eq!(reasons(json!({"ignoredResources": ["example.com/gpu"]})), nic);
        assert_eq!(reasons(json!({"ignoredResourceGroups": ["example.org"]})), gpu);
        assert_eq!(reasons(json!({"ignoredResources": ["example.com/gpu"], "ignoredResourceGroups": ["example.org"]})), "");
        let all = node("n", json!({"status": {"allocatable": {"cpu": "0", "example.com/gpu": "1", "example.org/nic": "1"}}}));
        let ignoring = NodeResourcesFit::new(&arguments("NodeResourcesFit", &json!({"ignoredResources": ["cpu"]})).node_resources_fit);
        let status = ignoring.filter(&CycleState::default(), &wanting, &all);
        assert_eq!(status, Status::UnschedulableAndUnresolvable(vec!["Insufficient cpu".into()]), "CPU is no extended resource");
    }

    #[test]
    fn huge_pages_are_a_resource_of_their_size() {
        let pages = node("n", json!({"status": {"allocatable": {"hugepages-2Mi": "8Mi", "hugepages-1Gi": "0"}}}));
        let wanting =
            |name: &str, amount: &str| pod("p", json!({"containers": [{"name": "c", "resources": {"requests": {name: amount}}}]}));
        assert_eq!(verdict(&wanting("hugepages-2Mi", "8Mi"), &pages), Status::Success);
        for (name, amount) in [("hugepages-2Mi", "10Mi"), ("hugepages-1Gi", "1Gi"), ("hugepages-32Mi", "32Mi")] {
            let reasons = vec![format!("Insufficient {name}").into()];
            assert_eq!(verdict(&wanting(name, amount), &pages), Status::UnschedulableAndUnresolvable(reasons));
        }
    }

    #[test]
    fn resources_that_devices_back_are_left_to_the_claim_where_the_node_has_none() {
        let container = json!({"name": "c", "resources": {"requests": {"example.com/gpu": "2", "example.org/nic": "1"}}});
        let wanting = pod("p", json!({"containers": [container]}));
        let mut all = Snapshot::default();
        let class = json!({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}});
        let reasons = |all: &Snapshot, has_devices: bool, gpus: &str| {
            let (plugin, mut state) = (plugin(), CycleState::default());
            if has_devices {
                assert_eq!(DynamicResources::default().pre_filter(&mut state, &wanting, all), Status::Success);
            }
            let allocatable = json!({"example.com/gpu": gpus, "example.org/nic": "1"});
            match plugin.filter(&state, &wanting, &node("n", json!({"status": {"allocatable": allocatable}}))) {
                Status::Success => String::new(),
                Status::Unschedulable(reasons) | Status::UnschedulableAndUnresolvable(reasons) => reasons.join(", "),
            }
        };
        let insufficient = "Insufficient example.com/gpu";
        assert_eq!(reasons(&all, true, "0"), insufficient);
        Arc::make_mut(&mut all.dra).set_class("gpu", Some(Arc::new(serde_json::from_value(class).expect("a class"))));
        assert_eq!(["0", "1", "2"].map(|gpus| reasons(&all, true, gpus)), ["", insufficient, ""]);
        assert_eq!(reasons(&all, false, "0"), insufficient, "in a profile without DynamicResources");
    }

    #[test]
    fn the_strategy_chooses_the_resources_and_the_direction() {
        let container = |gpu: &str| json!({"name": "c", "resources": {"requests": {"example.com/gpu": gpu, "cpu": "1", "memory": "2Gi"}}});
        let wanting = |gpu: &str| pod("p", json!({"containers": [container(gpu)]}));
        let gpus = node("n", json!({"status": {"allocatable": {"example.com/gpu": "4"}}}));
        let score = |strategy: serde_json::Value, gpu: &str| {
            let args = arguments("NodeResourcesFit", &json!({"scoringStrategy": strategy}));
            NodeResourcesFit::new(&args.node_resources_fit).score(&CycleState::default(), &wanting(gpu), &gpus)
        };
        let gpu = json!([{"name": "example.com/gpu", "weight": 3}, {"name": "cpu"}]);
        assert_eq!(score(json!({"type": "LeastAllocated"}), "3"), Some(75));
        assert_eq!(score(json!({"type": "MostAllocated"}), "3"), Some(25));
        assert_eq!(score(json!({"type": "MostAllocated", "resources": gpu}), "3"), Some(62));
        assert_eq!(score(json!({"type": "MostAllocated", "resources": gpu}), "0"), Some(25), "a resource that the Pod does not want");
        let shape = json!({"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]});
        let ratio = json!({"type": "RequestedToCapacityRatio", "resources": gpu, "requestedToCapacityRatio": shape});
        assert_eq!(score(ratio, "3"), Some(63));
    }

    /// A node reports its own resources, so the numbers may have any value.
    #[test]
    fn a_node_with_the_largest_amounts_scores_below_the_maximum() {
        let huge = node("huge", json!({"status": {"allocatable": {"cpu": "9223372036854775807m", "memory": "8Ei"}}}));
        assert_eq!(plugin().score(&CycleState::default(), &requesting("p", "1", "1Gi"), &huge), Some(SCORE_MAX - 1));
    }

    #[test]
    fn the_emptier_node_scores_higher() {
        let mut busy = node("busy", json!({}));
        busy.add_pod(Arc::new(requesting("a", "2", "4Gi")));
        let score = |node: &NodeInfo| plugin().score(&CycleState::default(), &requesting("p", "1", "1Gi"), node);
        assert_eq!((score(&node("idle", json!({}))), score(&busy)), (Some(81), Some(31)));
    }
}
