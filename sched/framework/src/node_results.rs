//! What a result of a cycle depends on that concerns one node.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ptr;
use std::sync::{Arc, Weak};

use crate::{NodeInfo, NominatedPods, PodInfo};

/// A state of a node and of the Pods that are nominated to the node: what a result of a cycle depends on. The weak pointers tell whether
/// that is the present state: the cache changes a value that somebody points to by moving it elsewhere ([`Arc::make_mut`]).
#[derive(Debug, Default)]
struct NodeVersion {
    node: Weak<NodeInfo>,
    nominated: Weak<Vec<Arc<PodInfo>>>,
}

impl NodeVersion {
    /// The present state.
    fn of(node: &Arc<NodeInfo>, nominated: &NominatedPods) -> Self {
        let nominated = nominated.list(&node.name).map(Arc::downgrade).unwrap_or_default();
        Self { node: Arc::downgrade(node), nominated }
    }

    /// Whether this is the present state.
    fn is_present(&self, node: &Arc<NodeInfo>, nominated: &NominatedPods) -> bool {
        let present = nominated.list(&node.name).map_or_else(|| Weak::new().as_ptr(), Arc::as_ptr);
        ptr::eq(self.node.as_ptr(), Arc::as_ptr(node)) && ptr::eq(self.nominated.as_ptr(), present)
    }
}

/// Results that depend on a node and on the Pods that are nominated to the node, for Pods that are alike.
#[derive(Debug)]
pub struct NodeResults<T> {
    /// By the index of the node in the snapshot.
    by_node: HashMap<usize, (NodeVersion, T)>,
}

impl<T> Default for NodeResults<T> {
    fn default() -> Self {
        Self { by_node: HashMap::new() }
    }
}

impl<T> NodeResults<T> {
    /// The result for the node, which `compute` gives if there is none for the present state.
    pub fn result(&mut self, node: &Arc<NodeInfo>, nominated: &NominatedPods, compute: impl FnOnce() -> T) -> &T {
        match self.by_node.entry(node.index) {
            Entry::Occupied(entry) => {
                let (version, result) = entry.into_mut();
                if !version.is_present(node, nominated) {
                    *version = NodeVersion::of(node, nominated);
                    *result = compute();
                }
                result
            }
            Entry::Vacant(entry) => &entry.insert((NodeVersion::of(node, nominated), compute())).1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_lasts_until_the_node_or_its_nominated_pods_change() {
        let pod = |uid: &str| Arc::new(PodInfo { uid: uid.to_owned(), ..PodInfo::default() });
        let (mut node, mut nominated) = (Arc::new(NodeInfo::named("n")), NominatedPods::default());
        let (mut results, mut computed) = (NodeResults::default(), 0);
        let mut is_computed = |node: &Arc<NodeInfo>, nominated: &NominatedPods| {
            computed += 1;
            *results.result(node, nominated, || computed) == computed
        };
        assert!(is_computed(&node, &nominated));
        nominated.nominate(pod("a"), "other");
        assert!(!is_computed(&node, &nominated), "another node");
        nominated.nominate(pod("b"), "n");
        assert!(is_computed(&node, &nominated));
        nominated.nominate(pod("c"), "n");
        assert!(is_computed(&node, &nominated));
        nominated.remove("c");
        assert!(is_computed(&node, &nominated));
        assert!(!is_computed(&node, &nominated));
        Arc::make_mut(&mut node).add_pod(pod("d"));
        assert!(is_computed(&node, &nominated));
        nominated.remove("b");
        assert!(is_computed(&node, &nominated));
    }
}
