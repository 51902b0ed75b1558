//! What a result of a cycle depends on that concerns one node.

use std::ptr;
use std::sync::{Arc, Weak};

use crate::{NodeInfo, NominatedPods, PodInfo};

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
        let nominated = nominated.list(&node.name).map(Arc::downgrade).unwrap_or_default();
        Self { node: Arc::downgrade(node), nominated }
    }

    /// Whether this is the present state.
    pub fn is_present(&self, node: &Arc<NodeInfo>, nominated: &NominatedPods) -> bool {
        let present = nominated.list(&node.name).map_or_else(|| Weak::new().as_ptr(), Arc::as_ptr);
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
