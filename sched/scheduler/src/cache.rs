//! The scheduler's picture of the cluster: the nodes and what is placed on them, with Pods assumed
//! on a node from the decision until the watch confirms it.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use sched_framework::{ClusterEvent, NodeInfo, PodInfo, Snapshot};

/// Nodes and placed Pods.
#[derive(Default)]
pub(crate) struct Cache {
    snapshot: Snapshot,
    /// Where in the snapshot a node is.
    positions: HashMap<String, usize>,
    /// Pods bound to nodes that do not exist, or not yet.
    homeless: HashMap<String, NodeInfo>,
    /// The node a placed Pod counts on, by UID.
    placed: HashMap<String, String>,
}

impl Cache {
    /// The nodes that exist.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Takes over a Node; answers what changed for Pods that wait.
    pub fn set_node(&mut self, node: &Node) -> Vec<ClusterEvent> {
        let name = node.metadata.name.clone().unwrap_or_default();
        if let Some(known) = self.node_mut(&name) {
            let before = known.clone();
            known.set_node(node);
            return changes(&before, known);
        }
        let mut info = self.homeless.remove(&name).unwrap_or_else(|| NodeInfo::named(&name));
        info.set_node(node);
        self.positions.insert(name, self.snapshot.nodes.len());
        self.snapshot.nodes.push(Arc::new(info));
        vec![ClusterEvent::NodeAdded]
    }

    /// Forgets a Node; its Pods stay known, should it come back.
    pub fn remove_node(&mut self, name: &str) {
        let Some(at) = self.positions.remove(name) else { return };
        let info = Arc::unwrap_or_clone(self.snapshot.nodes.swap_remove(at));
        if let Some(moved) = self.snapshot.nodes.get(at) {
            self.positions.insert(moved.name.clone(), at);
        }
        if !info.pods.is_empty() {
            self.homeless.insert(name.to_owned(), NodeInfo { exists: false, ..info });
        }
    }

    /// Counts a Pod on its node, whether confirmed or assumed.
    pub fn place(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.remove(&pod.uid);
        self.placed.insert(pod.uid.clone(), node.to_owned());
        match self.node_mut(node) {
            Some(info) => info.add_pod(pod),
            None => self.homeless.entry(node.to_owned()).or_insert_with(|| NodeInfo::named(node)).add_pod(pod),
        }
    }

    /// No longer counts a Pod; whether it was counted.
    pub fn remove(&mut self, uid: &str) -> bool {
        let Some(node) = self.placed.remove(uid) else { return false };
        if let Some(info) = self.node_mut(&node) {
            info.remove_pod(uid);
        } else if let Some(info) = self.homeless.get_mut(&node) {
            info.remove_pod(uid);
            if info.pods.is_empty() {
                self.homeless.remove(&node);
            }
        }
        true
    }

    /// UIDs of the Pods counted.
    #[cfg(test)]
    pub fn placed(&self) -> Vec<String> {
        self.placed.keys().cloned().collect()
    }

    fn node_mut(&mut self, name: &str) -> Option<&mut NodeInfo> {
        let at = *self.positions.get(name)?;
        self.snapshot.nodes.get_mut(at).map(Arc::make_mut)
    }
}

fn changes(before: &NodeInfo, after: &NodeInfo) -> Vec<ClusterEvent> {
    let mut events = Vec::new();
    if before.labels != after.labels {
        events.push(ClusterEvent::NodeLabels);
    }
    if before.taints != after.taints || before.unschedulable != after.unschedulable {
        events.push(ClusterEvent::NodeTaints);
    }
    if before.allocatable != after.allocatable || before.pods_max != after.pods_max {
        events.push(ClusterEvent::NodeAllocatable);
    }
    events
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plugins::fixtures::asking;

    fn object(name: &str) -> Node {
        serde_json::from_value(json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}}))
            .expect("a node")
    }

    fn used(cache: &Cache, name: &str) -> i64 {
        cache.snapshot.nodes.iter().find(|n| n.name == name).map_or(-1, |n| n.requested.cpu_milli)
    }

    #[test]
    fn pods_count_once_and_move_with_their_node() {
        let mut cache = Cache::default();
        let pod = Arc::new(asking("p", "1", "0"));
        cache.place(Arc::clone(&pod), "a");
        assert_eq!(cache.set_node(&object("a")), [ClusterEvent::NodeAdded]);
        cache.place(Arc::clone(&pod), "a");
        assert_eq!(used(&cache, "a"), 1000);
        cache.set_node(&object("b"));
        cache.remove_node("a");
        assert_eq!((used(&cache, "a"), used(&cache, "b")), (-1, 0));
        cache.set_node(&object("a"));
        assert_eq!(used(&cache, "a"), 1000);
        assert!(cache.remove("p"));
        assert_eq!(used(&cache, "a"), 0);
        assert!(!cache.remove("p"));
    }

    #[test]
    fn only_changes_that_matter_are_told() {
        let mut cache = Cache::default();
        cache.set_node(&object("a"));
        assert_eq!(cache.set_node(&object("a")), []);
        let mut cordoned = object("a");
        cordoned.spec.get_or_insert_default().unschedulable = Some(true);
        assert_eq!(cache.set_node(&cordoned), [ClusterEvent::NodeTaints]);
    }
}
