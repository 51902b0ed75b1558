//! The Pods that are nominated to nodes: Pods for which others were preempted there. Upstream's `nominator`.

use std::collections::HashMap;
use std::sync::Arc;

use crate::PodInfo;

/// Pods without a node that are nominated to one.
#[derive(Clone, Debug, Default)]
pub struct NominatedPods {
    by_node: HashMap<String, Arc<Vec<Arc<PodInfo>>>>,
    /// The node of each Pod, by UID.
    nodes: HashMap<String, String>,
}

impl NominatedPods {
    /// Nominates the Pod to the node, and to no other node any more.
    pub fn nominate(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.remove(&pod.uid);
        self.nodes.insert(pod.uid.clone(), node.to_owned());
        Arc::make_mut(self.by_node.entry(node.to_owned()).or_default()).push(pod);
    }

    /// Ends the nomination of a Pod. Returns whether there was one.
    pub fn remove(&mut self, uid: &str) -> bool {
        let Some(node) = self.nodes.remove(uid) else { return false };
        if let Some(pods) = self.by_node.get_mut(&node).map(Arc::make_mut) {
            pods.retain(|pod| pod.uid != uid);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
        true
    }

    /// The node to which a Pod is nominated.
    pub fn node_of(&self, uid: &str) -> Option<&str> {
        self.nodes.get(uid).map(String::as_str)
    }

    /// The Pods nominated to the node that go before the Pod: others of at least its priority.
    pub fn before<'a>(&'a self, pod: &'a PodInfo, node: &str) -> impl Iterator<Item = &'a Arc<PodInfo>> {
        let of_node = if self.by_node.is_empty() { None } else { self.by_node.get(node) };
        of_node.into_iter().flat_map(|pods| pods.iter()).filter(|other| other.priority >= pod.priority && other.uid != pod.uid)
    }

    /// The Pods nominated to the node, if there are any. A change moves them elsewhere when somebody points to them.
    pub(crate) fn list(&self, node: &str) -> Option<&Arc<Vec<Arc<PodInfo>>>> {
        self.by_node.get(node)
    }

    /// The Pods nominated to the node.
    pub fn to_node(&self, node: &str) -> impl Iterator<Item = &Arc<PodInfo>> {
        self.by_node.get(node).into_iter().flat_map(|pods| pods.iter())
    }

    /// The Pods nominated to the node that go after the Pod: those of a lower priority.
    pub fn after<'a>(&'a self, pod: &'a PodInfo, node: &str) -> impl Iterator<Item = &'a Arc<PodInfo>> {
        self.to_node(node).filter(|other| other.priority < pod.priority)
    }
}
