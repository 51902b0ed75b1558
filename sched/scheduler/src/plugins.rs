//! The default profile: one file a plugin.

mod balanced_allocation;
mod default_preemption;
mod inter_pod_affinity;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_resources_fit;
mod node_unschedulable;
mod pod_topology_spread;
mod taint_toleration;
mod topology;

use sched_framework::{Filters, PostFilterPlugin, ScorePlugin};

/// The plugins of a profile, in the order in which the cycle calls them.
pub(crate) struct Profile {
    pub filters: Filters,
    pub post_filters: Vec<Box<dyn PostFilterPlugin>>,
    pub scores: Vec<Box<dyn ScorePlugin>>,
}

impl Default for Profile {
    /// Upstream's order and weights.
    fn default() -> Self {
        Self {
            filters: Filters::new(vec![
                Box::new(node_unschedulable::NodeUnschedulable),
                Box::new(node_name::NodeName),
                Box::new(taint_toleration::TaintToleration),
                Box::new(node_affinity::NodeAffinity),
                Box::new(node_ports::NodePorts),
                Box::new(node_resources_fit::NodeResourcesFit),
                Box::new(pod_topology_spread::PodTopologySpread),
                Box::new(inter_pod_affinity::InterPodAffinity),
            ]),
            post_filters: vec![Box::new(default_preemption::DefaultPreemption)],
            scores: vec![
                Box::new(taint_toleration::TaintToleration),
                Box::new(node_affinity::NodeAffinity),
                Box::new(node_resources_fit::NodeResourcesFit),
                Box::new(pod_topology_spread::PodTopologySpread),
                Box::new(inter_pod_affinity::InterPodAffinity),
                Box::new(balanced_allocation::BalancedAllocation),
            ],
        }
    }
}

#[cfg(test)]
pub(crate) mod fixtures {
    //! Nodes and Pods for the tables of tests.

    use std::sync::Arc;

    use k8s_openapi::api::core::v1::{Node, Pod};
    use sched_framework::{CycleState, NodeInfo, PodInfo, ScorePlugin, Snapshot};
    use serde_json::{Value, json};

    /// The scaled scores of all nodes; `None` when the plugin has no preference.
    pub(crate) fn scores(plugin: &dyn ScorePlugin, pod: &PodInfo, all: &Snapshot) -> Option<Vec<i64>> {
        let nodes: Vec<&NodeInfo> = all.nodes.iter().map(AsRef::as_ref).collect();
        let mut state = CycleState::default();
        plugin.count_pods(&mut state, pod, all);
        plugin.pre_score(&mut state, pod, &nodes).then(|| {
            let raw: Vec<_> = nodes.iter().map(|node| plugin.score(&state, pod, node)).collect();
            plugin.normalization().scale(&raw)
        })
    }

    /// A node of 4 cores, 8 GiB and 110 Pods; `more` is merged over it.
    pub(crate) fn node(name: &str, more: Value) -> NodeInfo {
        let mut object = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}});
        merge(&mut object, more);
        let mut info = NodeInfo::named(name);
        info.set_node(&serde_json::from_value::<Node>(object).expect("a node"));
        info
    }

    /// A Pod of one container with that `spec` merged over it.
    pub(crate) fn pod(name: &str, spec: Value) -> PodInfo {
        labelled(name, json!({}), spec)
    }

    /// A Pod with labels and that `spec`.
    pub(crate) fn labelled(name: &str, labels: Value, spec: Value) -> PodInfo {
        let mut object = json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"containers": [{"name": "c"}]}});
        merge(&mut object, json!({"metadata": {"labels": labels}, "spec": spec}));
        PodInfo::new(&serde_json::from_value::<Pod>(object).expect("a pod"))
    }

    /// A snapshot of the nodes.
    pub(crate) fn snapshot(nodes: Vec<NodeInfo>) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (index, node) in nodes.into_iter().enumerate() {
            let with_affinity = node.pods.values().filter(|pod| !pod.pod_affinity.is_empty());
            let by_uid = with_affinity.map(|pod| (pod.uid.clone(), (Arc::clone(pod), node.name.clone())));
            snapshot.pods_with_affinity.extend(by_uid);
            snapshot.node_index.insert(node.name.clone(), index);
            snapshot.nodes.push(Arc::new(node));
        }
        snapshot
    }

    /// A Pod that requests CPU and memory.
    pub(crate) fn requesting(name: &str, cpu: &str, memory: &str) -> PodInfo {
        pod(name, json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}))
    }

    fn merge(into: &mut Value, from: Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                from.into_iter().for_each(|(k, v)| merge(into.entry(k).or_insert(Value::Null), v))
            }
            (into, from) => *into = from,
        }
    }
}
