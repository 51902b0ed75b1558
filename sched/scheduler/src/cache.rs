//! The scheduler's cache: the nodes and the Pods on them. A Pod is assumed on its node from the decision until the informer
//! has the Pod with its `spec.nodeName`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerImage, Node};
use sched_framework::{
    ClusterEvent, DisruptionBudget, DraManager, ImageId, NodeInfo, NumberedChange, PodInfo, Snapshot, Volumes, interleaved, zone_of,
};

/// Nodes with the Pods on them, confirmed and assumed. A copy shares the nodes.
#[derive(Clone, Default)]
pub(crate) struct Cache {
    snapshot: Snapshot,
    /// Nodes without a Node object to which Pods are bound, by name.
    nodes_without_object: HashMap<String, NodeInfo>,
    /// The node of a Pod, by the Pod's UID.
    pod_nodes: HashMap<String, String>,
    /// The UIDs of the Pods of each group that are on nodes, confirmed and assumed, and not being deleted. By `namespace/name`.
    groups: HashMap<Arc<str>, HashSet<String>>,
    /// The images of the nodes that have some, by the name of the node.
    images: HashMap<String, Arc<[ImageId]>>,
    /// Whether nodes came, left or moved to another zone since they were ordered.
    is_order_stale: bool,
}

impl Cache {
    /// The nodes that exist.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The snapshot, for what plugins reserve: nodes and Pods are changed by the cache alone.
    pub fn snapshot_mut(&mut self) -> &mut Snapshot {
        &mut self.snapshot
    }

    /// What the volumes of Pods depend on, to be changed.
    pub fn volumes_mut(&mut self) -> &mut Volumes {
        Arc::make_mut(&mut self.snapshot.volumes)
    }

    /// The claims for devices and the devices, to be changed.
    pub fn dra_mut(&mut self) -> &mut DraManager {
        Arc::make_mut(&mut self.snapshot.dra)
    }

    /// Stores the new state of a Node, or adds it. Returns the changes that may help unschedulable Pods.
    pub fn update_node(&mut self, node: &Node) -> Vec<ClusterEvent> {
        let name = node.metadata.name.clone().unwrap_or_default();
        if let Some(info) = self.node_mut(&name) {
            let pods = std::mem::take(&mut info.pods);
            let before = info.clone();
            info.pods = pods;
            info.set_node(node);
            let events = changes(&before, info);
            let is_moved = zone_of(&before.labels) != zone_of(&info.labels);
            self.snapshot.generation += u64::from(before.labels != info.labels || before.taints != info.taints);
            if is_moved {
                self.forget_order();
            }
            return events;
        }
        self.snapshot.generation += 1;
        let mut info = self.nodes_without_object.remove(&name).unwrap_or_else(|| NodeInfo::named(&name));
        info.set_node(node);
        info.images = self.images.get(&name).cloned().unwrap_or_default();
        info.index = self.snapshot.nodes.len();
        self.snapshot.node_index.insert(name, info.index);
        self.snapshot.nodes.push(Arc::new(info));
        self.forget_order();
        vec![ClusterEvent::NodeAdd]
    }

    /// Stores the images of a node. No result of a plugin of the scope of nodes depends on them.
    pub fn set_images(&mut self, node: &str, images: &[ContainerImage]) {
        let before = self.images.remove(node).unwrap_or_default();
        let now = self.snapshot.images.replace(&before, images);
        if now != before
            && let Some(index) = self.snapshot.node_index.get(node)
            && let Some(info) = self.snapshot.nodes.get_mut(*index)
        {
            Arc::make_mut(info).images = Arc::clone(&now);
        }
        if !now.is_empty() {
            self.images.insert(node.to_owned(), now);
        }
    }

    /// Removes the images of other nodes than these.
    pub fn retain_images(&mut self, nodes: &BTreeSet<String>) {
        let gone: Vec<String> = self.images.keys().filter(|name| !nodes.contains(*name)).cloned().collect();
        gone.iter().for_each(|name| self.set_images(name, &[]));
    }

    /// Orders the nodes by their zones for the next searches, if that changed.
    pub fn order_nodes(&mut self) {
        if std::mem::take(&mut self.is_order_stale) {
            self.snapshot.visiting_order = interleaved(&self.snapshot.nodes);
        }
    }

    /// An order has the index of each node once. Without one, nodes are visited in the order of their indexes.
    fn forget_order(&mut self) {
        self.is_order_stale = true;
        self.snapshot.visiting_order.clear();
    }

    /// Stores the labels of a namespace, or removes a namespace that is gone.
    pub fn set_namespace(&mut self, name: &str, labels: Option<BTreeMap<String, String>>) {
        if self.snapshot.namespaces.set(name, labels) {
            self.snapshot.generation += 1;
        }
    }

    /// Stores a PodDisruptionBudget, or removes one that is gone. `key` is `namespace/name`.
    pub fn set_budget(&mut self, key: String, budget: Option<DisruptionBudget>) {
        let budgets = Arc::make_mut(&mut self.snapshot.budgets);
        match budget {
            Some(budget) => budgets.insert(key, budget),
            None => budgets.remove(&key),
        };
    }

    /// Stores whether the Pods of a PodGroup are preempted together or not at all.
    pub fn set_indivisible(&mut self, group: &str, is_indivisible: bool) {
        if self.snapshot.indivisible_groups.contains(group) != is_indivisible {
            let groups = Arc::make_mut(&mut self.snapshot.indivisible_groups);
            if is_indivisible {
                groups.insert(group.into())
            } else {
                groups.remove(group)
            };
        }
    }

    /// Nominates a Pod to the node, so that less important Pods do not take the room that was made for the Pod.
    pub fn nominate(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.snapshot.nominated.nominate(pod, node);
    }

    /// Ends the nomination of a Pod. Returns whether there was one.
    pub fn end_nomination(&mut self, uid: &str) -> bool {
        self.snapshot.nominated.remove(uid)
    }

    /// The Pod as the cache has it, if it is on a node.
    pub fn pod(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        let node = self.pod_nodes.get(uid)?;
        let info = self.snapshot.node(node).map(Arc::as_ref).or_else(|| self.nodes_without_object.get(node))?;
        info.pods.get(uid)
    }

    /// Removes a Node. The cache keeps the Node's Pods, in case the Node is created again.
    pub fn remove_node(&mut self, name: &str) {
        let Some(index) = self.snapshot.node_index.remove(name) else { return };
        self.snapshot.generation += 1;
        self.snapshot.layout += 1;
        self.forget_order();
        let info = Arc::unwrap_or_clone(self.snapshot.nodes.swap_remove(index));
        if let Some(moved) = self.snapshot.nodes.get_mut(index).map(Arc::make_mut) {
            moved.index = index;
            self.snapshot.node_index.insert(moved.name.clone(), index);
        }
        if !info.pods.is_empty() {
            self.nodes_without_object.insert(name.to_owned(), NodeInfo { exists: false, ..info });
        }
    }

    /// Adds a Pod to the node that the scheduler chose, before the binding is written.
    pub fn assume_pod(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.insert(pod, node);
    }

    /// Takes back [`Cache::assume_pod`] after a binding that failed.
    pub fn forget_pod(&mut self, uid: &str) {
        self.remove_pod(uid);
    }

    /// Adds a Pod to the node to which it is bound. An assumed Pod with the same UID is replaced.
    pub fn add_pod(&mut self, pod: Arc<PodInfo>) {
        let node = pod.node_name.clone();
        self.insert(pod, &node);
    }

    /// The number of Pods of the group that are on nodes, confirmed and assumed, and not being deleted.
    pub fn scheduled_in(&self, group: &str) -> usize {
        self.groups.get(group).map_or(0, HashSet::len)
    }

    /// Removes a Pod. Returns whether the cache had it.
    pub fn remove_pod(&mut self, uid: &str) -> bool {
        if let Some(group) = self.pod(uid).and_then(|pod| pod.pod_group.clone())
            && let Some(pods) = self.groups.get_mut(&group)
        {
            pods.remove(uid);
            if pods.is_empty() {
                self.groups.remove(&group);
            }
        }
        let Some(node) = self.pod_nodes.remove(uid) else { return false };
        self.snapshot.pods_with_affinity.remove(uid);
        if let Some(info) = self.node_mut(&node) {
            let removed = info.remove_pod(uid);
            removed.into_iter().for_each(|pod| self.snapshot.pod_changes.push(NumberedChange { pod, node: node.clone(), number: -1 }));
        } else if let Some(info) = self.nodes_without_object.get_mut(&node) {
            info.remove_pod(uid);
            if info.pods.is_empty() {
                self.nodes_without_object.remove(&node);
            }
        }
        true
    }

    /// The number of Pods, confirmed and assumed.
    pub fn pod_count(&self) -> usize {
        self.pod_nodes.len()
    }

    fn insert(&mut self, pod: Arc<PodInfo>, node: &str) {
        if self.replace(&pod, node) {
            return;
        }
        self.remove_pod(&pod.uid);
        self.end_nomination(&pod.uid);
        self.pod_nodes.insert(pod.uid.clone(), node.to_owned());
        if let Some(group) = pod.pod_group.as_ref().filter(|_| !pod.deleting) {
            self.groups.entry(Arc::clone(group)).or_default().insert(pod.uid.clone());
        }
        if !pod.pod_affinity.is_empty() {
            self.snapshot.pods_with_affinity.insert(pod.uid.clone(), (Arc::clone(&pod), node.to_owned()));
        }
        self.snapshot.pod_changes.push(NumberedChange { pod: Arc::clone(&pod), node: node.to_owned(), number: 1 });
        match self.node_mut(node) {
            Some(info) => info.add_pod(pod),
            None => self.nodes_without_object.entry(node.to_owned()).or_insert_with(|| NodeInfo::named(node)).add_pod(pod),
        }
    }

    /// Stores the newer state of a Pod that stays on its node, if no result depends on what changed: most often the binding of
    /// an assumed Pod was written. Returns whether it did.
    fn replace(&mut self, pod: &Arc<PodInfo>, node: &str) -> bool {
        let index = self.snapshot.node_index.get(node).filter(|_| self.pod_nodes.get(&pod.uid).is_some_and(|on| on == node));
        let info = index.and_then(|index| self.snapshot.nodes.get_mut(*index)).map(Arc::make_mut);
        let Some(info) = info.filter(|info| info.pods.get(&pod.uid).is_some_and(|before| before.counts_as(pod))) else { return false };
        info.pods.insert(Arc::clone(pod));
        if let Some((with_affinity, _)) = self.snapshot.pods_with_affinity.get_mut(&pod.uid) {
            with_affinity.clone_from(pod);
        }
        true
    }

    /// The node, to be changed.
    fn node_mut(&mut self, name: &str) -> Option<&mut NodeInfo> {
        let index = *self.snapshot.node_index.get(name)?;
        self.snapshot.node_changes.push(index);
        self.snapshot.nodes.get_mut(index).map(Arc::make_mut)
    }
}

fn changes(before: &NodeInfo, after: &NodeInfo) -> Vec<ClusterEvent> {
    let mut events = Vec::new();
    if before.labels != after.labels {
        events.push(ClusterEvent::UpdateNodeLabel);
    }
    // A node that is cordoned helps nobody.
    if before.taints != after.taints || before.unschedulable && !after.unschedulable {
        events.push(ClusterEvent::UpdateNodeTaint);
    }
    if before.allocatable != after.allocatable || before.pods_max != after.pods_max {
        events.push(ClusterEvent::UpdateNodeAllocatable);
    }
    events
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plugins::fixtures::requesting;

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
        let pod = Arc::new(requesting("p", "1", "0"));
        cache.assume_pod(Arc::clone(&pod), "a");
        assert_eq!(cache.update_node(&object("a")), [ClusterEvent::NodeAdd]);
        cache.assume_pod(Arc::clone(&pod), "a");
        assert_eq!(used(&cache, "a"), 1000);
        cache.update_node(&object("b"));
        cache.remove_node("a");
        assert_eq!((used(&cache, "a"), used(&cache, "b")), (-1, 0));
        cache.update_node(&object("a"));
        assert_eq!(used(&cache, "a"), 1000);
        assert!(cache.remove_pod("p"));
        assert_eq!(used(&cache, "a"), 0);
        assert!(!cache.remove_pod("p"));
    }

    #[test]
    fn nodes_have_their_indexes_also_after_a_removal() {
        let mut cache = Cache::default();
        ["a", "b", "c"].iter().for_each(|name| drop(cache.update_node(&object(name))));
        cache.assume_pod(Arc::new(requesting("p", "1", "0")), "a");
        cache.remove_node("a");
        cache.update_node(&object("a"));
        let indexes: Vec<_> = cache.snapshot().nodes.iter().map(|node| (node.name.as_str(), node.index)).collect();
        assert_eq!(indexes, [("c", 0), ("b", 1), ("a", 2)]);
    }

    #[test]
    fn the_order_of_nodes_follows_their_zones() {
        let in_zone = |name: &str, zone: &str| {
            let mut node = object(name);
            node.metadata.labels.get_or_insert_default().insert("topology.kubernetes.io/zone".to_owned(), zone.to_owned());
            node
        };
        let mut cache = Cache::default();
        let order = |cache: &mut Cache| {
            cache.order_nodes();
            let nodes = &cache.snapshot().nodes;
            let names = (0..nodes.len()).map(|position| nodes[cache.snapshot().index_at(position)].name.clone());
            names.collect::<Vec<_>>().join(" ")
        };
        for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")] {
            cache.update_node(&in_zone(name, zone));
        }
        assert_eq!(order(&mut cache), "a1 b1 a2 b2");
        cache.remove_node("a1");
        assert_eq!(cache.snapshot().visiting_order, [0; 0], "an index would be one too many");
        assert_eq!(order(&mut cache), "b2 a2 b1");
        cache.update_node(&in_zone("a2", "b"));
        assert_eq!(order(&mut cache), "b2 a2 b1", "one zone is left");
        assert!(cache.snapshot().visiting_order.is_empty());
        cache.update_node(&in_zone("b1", "c"));
        cache.update_node(&in_zone("c2", "c"));
        assert_eq!(order(&mut cache), "b2 b1 a2 c2");
    }

    #[test]
    fn images_are_those_of_the_nodes_whichever_watch_is_first() {
        let images = |names: &[&str]| {
            let image = |name: &&str| ContainerImage { names: Some(vec![(*name).to_owned()]), size_bytes: Some(1) };
            names.iter().map(image).collect::<Vec<_>>()
        };
        let mut cache = Cache::default();
        cache.set_images("a", &images(&["one:1", "two:1"]));
        ["a", "b"].iter().for_each(|name| drop(cache.update_node(&object(name))));
        cache.set_images("b", &images(&["two:1"]));
        let of = |cache: &Cache, name: &str| cache.snapshot().node(name).map(|node| node.images.to_vec());
        assert_eq!((of(&cache, "a"), of(&cache, "b")), (Some(vec![0, 1]), Some(vec![1])));
        assert_eq!(cache.snapshot().images.get("two:1"), Some((1, 1, 2)));
        cache.retain_images(&["b".to_owned()].into());
        assert_eq!((of(&cache, "a"), cache.snapshot().images.get("one:1")), (Some(vec![]), None));
        cache.set_images("b", &[]);
        assert!(cache.snapshot().images.is_empty() && cache.images.is_empty());
    }

    #[test]
    fn only_changes_that_may_help_a_pod_are_events() {
        let mut cache = Cache::default();
        cache.update_node(&object("a"));
        assert_eq!(cache.update_node(&object("a")), []);
        let mut cordoned = object("a");
        cordoned.spec.get_or_insert_default().unschedulable = Some(true);
        assert_eq!(cache.update_node(&cordoned), []);
        assert_eq!(cache.update_node(&object("a")), [ClusterEvent::UpdateNodeTaint]);
    }
}
