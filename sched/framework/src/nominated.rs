//! The Pods that are nominated to nodes: Pods for which others were preempted there. Upstream's `nominator`.

use std::collections::HashMap;
use std::ptr;
use std::sync::{Arc, Weak};

use crate::{NodeInfo, PodInfo};

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

    /// The Pods nominated to the node.
    pub fn to_node(&self, node: &str) -> impl Iterator<Item = &Arc<PodInfo>> {
        self.by_node.get(node).into_iter().flat_map(|pods| pods.iter())
    }

    /// The Pods nominated to the node that go after the Pod: those of a lower priority.
    pub fn after<'a>(&'a self, pod: &'a PodInfo, node: &str) -> impl Iterator<Item = &'a Arc<PodInfo>> {
        self.to_node(node).filter(|other| other.priority < pod.priority)
    }
}

/// A state of a node and of the Pods that are nominated to the node: what a result of a cycle depends on. The weak pointers tell whether
/// that is the present state: the cache changes a value that somebody points to by moving it elsewhere ([`Arc::make_mut`]).
#[derive(Debug, Default)]
pub struct NodeVersion {
    node: Weak<NodeInfo>,
    nominated: Weak<Vec<Arc<PodInfo>>>,
}

impl NodeVersion {
    /// The present state.
    pub fn of(node: &Arc<NodeInfo>, nominated: &NominatedPods) -> Self {
        let nominated = nominated.by_node.get(&node.name).map(Arc::downgrade).unwrap_or_default();
        Self { node: Arc::downgrade(node), nominated }
    }

    /// Whether this is the present state.
    pub fn is_present(&self, node: &Arc<NodeInfo>, nominated: &NominatedPods) -> bool {
        let present = nominated.by_node.get(&node.name).map_or_else(|| Weak::new().as_ptr(), Arc::as_ptr);
        ptr::eq(self.node.as_ptr(), Arc::as_ptr(node)) && ptr::eq(self.nominated.as_ptr(), present)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_lasts_until_the_node_or_its_nominated_pods_change() {
        let pod = |uid: &str| Arc::new(PodInfo { uid: uid.to_owned(), ..PodInfo::default() });
        let (mut node, mut nominated) = (Arc::new(NodeInfo::named("n")), NominatedPods::default());
        assert!(!NodeVersion::default().is_present(&node, &nominated));
        let mut version = NodeVersion::of(&node, &nominated);
        let mut changes = |node: &Arc<NodeInfo>, nominated: &NominatedPods| {
            let changes = !version.is_present(node, nominated);
            version = NodeVersion::of(node, nominated);
            changes
        };
        nominated.nominate(pod("a"), "other");
        assert!(!changes(&node, &nominated), "another node");
        nominated.nominate(pod("b"), "n");
        assert!(changes(&node, &nominated));
        nominated.nominate(pod("c"), "n");
        assert!(changes(&node, &nominated));
        nominated.remove("c");
        assert!(changes(&node, &nominated));
        assert!(!changes(&node, &nominated));
        Arc::make_mut(&mut node).add_pod(pod("d"));
        assert!(changes(&node, &nominated));
        nominated.remove("b");
        assert!(changes(&node, &nominated));
    }
}
