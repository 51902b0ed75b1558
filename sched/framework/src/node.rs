//! A node with what is placed on it, and the snapshot that a scheduling cycle works on.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};

use crate::{PodInfo, PortUse, ResourceList};

/// A node as plugins see it.
#[derive(Clone, Debug, Default)]
pub struct NodeInfo {
    /// Name.
    pub name: String,
    /// Whether the Node object exists; Pods may be bound to one that is gone.
    pub exists: bool,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// What Pods may have.
    pub allocatable: ResourceList,
    /// How many Pods it takes.
    pub pods_max: usize,
    /// What its Pods ask for.
    pub requested: ResourceList,
    /// The same with stand-ins for Pods that ask for nothing.
    pub scored_requested: ResourceList,
    /// Ports its Pods hold.
    pub ports: Vec<PortUse>,
    /// Its Pods by UID.
    pub pods: HashMap<String, Arc<PodInfo>>,
}

impl NodeInfo {
    /// A node of that name with nothing known of it yet.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Takes over the Node object.
    pub fn set_node(&mut self, node: &Node) {
        let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
        let allocatable = status.and_then(|s| s.allocatable.as_ref());
        self.exists = true;
        self.labels = node.metadata.labels.clone().unwrap_or_default();
        self.taints = spec.and_then(|s| s.taints.clone()).unwrap_or_default();
        self.unschedulable = spec.and_then(|s| s.unschedulable).unwrap_or_default();
        self.allocatable = allocatable.map(ResourceList::from_quantities).unwrap_or_default();
        let pods = allocatable.and_then(|a| a.get("pods")).and_then(|q| api_model::quantity::value(&q.0).ok());
        self.pods_max = pods.and_then(|p| usize::try_from(p).ok()).unwrap_or_default();
    }

    /// Counts a Pod; one that is there already is counted once.
    pub fn add_pod(&mut self, pod: Arc<PodInfo>) {
        self.remove_pod(&pod.uid);
        self.requested.add(&pod.requests);
        self.scored_requested.add(&pod.scored_requests);
        self.ports.extend(pod.ports.iter().cloned());
        self.pods.insert(pod.uid.clone(), pod);
    }

    /// No longer counts a Pod.
    pub fn remove_pod(&mut self, uid: &str) {
        let Some(pod) = self.pods.remove(uid) else { return };
        self.requested.subtract(&pod.requests);
        self.scored_requested.subtract(&pod.scored_requests);
        for port in &pod.ports {
            if let Some(at) = self.ports.iter().position(|held| held == port) {
                self.ports.swap_remove(at);
            }
        }
    }
}

/// The nodes at one moment, in a stable order. Cloning shares the nodes.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The nodes that exist.
    pub nodes: Vec<Arc<NodeInfo>>,
}
