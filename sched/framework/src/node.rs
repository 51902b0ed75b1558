//! A node with the Pods on it, and the snapshot that a scheduling cycle works on.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};

use crate::{
    Changes, DisruptionBudget, DraManager, HostPort, ImageId, ImageStates, NamespaceLabels, NominatedPods, NumberedChange, PodInfo, PodSet,
    Resource, Volumes,
};

/// A node with the sums over its Pods, as plugins see it.
#[derive(Clone, Debug, Default)]
pub struct NodeInfo {
    /// Name.
    pub name: String,
    /// The index in [`Snapshot::nodes`]; without meaning for a node that is in no snapshot.
    pub index: usize,
    /// Whether the Node object exists. Pods may be bound to a node whose object is gone.
    pub exists: bool,
    /// Labels.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Taints.
    pub taints: Arc<Vec<Taint>>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// The resources that Pods may request in total.
    pub allocatable: Resource,
    /// The highest number of Pods on the node.
    pub pods_max: usize,
    /// The sum of the requests of the node's Pods.
    pub requested: Resource,
    /// The same sum with [`PodInfo::non_zero_requests`].
    pub non_zero_requested: Resource,
    /// The host ports of the node's Pods.
    pub used_ports: Vec<HostPort>,
    /// The node's Pods.
    pub pods: PodSet,
    /// The node's images by their numbers in [`Snapshot::images`], in order.
    pub images: Arc<[ImageId]>,
}

impl NodeInfo {
    /// A node of that name without a Node object and without Pods.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Copies what plugins need from the Node object.
    pub fn set_node(&mut self, node: &Node) {
        let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
        let allocatable = status.and_then(|s| s.allocatable.as_ref());
        self.exists = true;
        self.labels = Arc::new(node.metadata.labels.clone().unwrap_or_default());
        self.taints = Arc::new(spec.and_then(|s| s.taints.clone()).unwrap_or_default());
        self.unschedulable = spec.and_then(|s| s.unschedulable).unwrap_or_default();
        self.allocatable = allocatable.map(Resource::from_quantities).unwrap_or_default();
        let pods = allocatable.and_then(|a| a.get("pods")).and_then(|q| api_model::quantity::value(&q.0).ok());
        self.pods_max = pods.and_then(|p| usize::try_from(p).ok()).unwrap_or_default();
    }

    /// Adds a Pod to the node's sums. A Pod with the same UID is replaced.
    pub fn add_pod(&mut self, pod: Arc<PodInfo>) {
        self.remove_pod(&pod.uid);
        self.requested.add(&pod.requests);
        self.non_zero_requested.add(&pod.non_zero_requests);
        self.used_ports.extend(pod.ports.iter().cloned());
        self.pods.insert(pod);
    }

    /// Takes a Pod out of the node's sums. Returns the Pod if the node had it.
    pub fn remove_pod(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let pod = self.pods.remove(uid)?;
        self.requested.subtract(&pod.requests);
        self.non_zero_requested.subtract(&pod.non_zero_requests);
        for port in &pod.ports {
            if let Some(at) = self.used_ports.iter().position(|used| used == port) {
                self.used_ports.swap_remove(at);
            }
        }
        Some(pod)
    }
}

/// The nodes at one moment, in a stable order. Cloning shares the nodes.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The nodes that exist.
    pub nodes: Vec<Arc<NodeInfo>>,
    /// The index of a node in [`Snapshot::nodes`], by name.
    pub node_index: HashMap<String, usize>,
    /// The indexes of the nodes in the order in which a search visits them; empty when that is the order of [`Snapshot::nodes`].
    pub visiting_order: Vec<usize>,
    /// The Pods with affinity or anti-affinity to other Pods, each with the name of its node, by UID.
    pub pods_with_affinity: HashMap<String, (Arc<PodInfo>, String)>,
    /// The images that the nodes have.
    pub images: ImageStates,
    /// The labels of the namespaces.
    pub namespaces: NamespaceLabels,
    /// The Pods that are nominated to nodes.
    pub nominated: NominatedPods,
    /// The PodGroups whose Pods are preempted together or not at all, by `namespace/name`.
    pub indivisible_groups: Arc<HashSet<Arc<str>>>,
    /// The PodDisruptionBudgets, by `namespace/name`.
    pub budgets: Arc<HashMap<String, DisruptionBudget>>,
    /// What the volumes of Pods depend on.
    pub volumes: Arc<Volumes>,
    /// The claims for devices, and the devices.
    pub dra: Arc<DraManager>,
    /// Another number after each change of a node or of a namespace, but for the Pods on the nodes.
    pub generation: u64,
    /// Another number after the removal of a node, which changes the indexes of nodes.
    pub layout: u64,
    /// The latest changes of the Pods on the nodes.
    pub pod_changes: Changes<NumberedChange>,
    /// The indexes of the nodes that changed, or whose Pods changed.
    pub node_changes: Changes<usize>,
}

impl Snapshot {
    /// The node of that name, if its Node object exists.
    pub fn node(&self, name: &str) -> Option<&Arc<NodeInfo>> {
        self.nodes.get(*self.node_index.get(name)?)
    }

    /// The index of the node that a search visits at that position.
    pub fn index_at(&self, position: usize) -> usize {
        self.visiting_order.get(position).copied().unwrap_or(position)
    }
}
