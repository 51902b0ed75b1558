//! The nodes that are read, and the Pods of which each may speak.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use api_cache::{Cache, Filter, Object};
use api_model::kind::GroupResource;

use crate::condition;
use crate::connect::Kubelet;

/// Namespace and name of a Pod.
pub(super) type PodName = (Arc<str>, Arc<str>);

/// One node of a pass.
pub(super) struct Target {
    pub(super) node: Arc<str>,
    pub(super) kubelet: Kubelet,
    /// The Pods that are bound to it.
    pub(super) pods: Vec<PodName>,
}

/// The addresses of nodes, which are read from a Node again only when it has changed.
#[derive(Default)]
pub(super) struct Targets {
    nodes: HashMap<Arc<str>, ReadNode>,
}

/// A node at a revision of its Node.
struct ReadNode {
    revision: u64,
    /// `None`: it is not ready.
    kubelet: Option<Kubelet>,
    /// The passes since it has been ready.
    passes: u32,
}

impl Targets {
    /// Whether every ready node was part of two passes, after which there are metrics of it.
    pub(super) fn are_settled(&mut self, cache: &Cache) -> bool {
        self.update(cache);
        self.nodes.values().all(|node| node.kubelet.is_none() || node.passes >= 2)
    }

    /// Every ready node. Those in `last` come last: whoever does not answer takes the others no time.
    pub(super) fn of_pass(&mut self, cache: &Cache, last: &HashSet<Arc<str>>) -> Vec<Target> {
        self.update(cache);
        self.nodes.values_mut().filter(|node| node.kubelet.is_some()).for_each(|node| node.passes = node.passes.saturating_add(1));
        let ready = || self.nodes.iter().filter_map(|(name, node)| Some((name, node.kubelet.as_ref()?)));
        if ready().next().is_none() {
            return Vec::new();
        }
        let mut pods = bound_pods(cache);
        let targets = ready().map(|(name, kubelet)| Target {
            node: Arc::clone(name),
            kubelet: kubelet.clone(),
            pods: pods.remove(name).unwrap_or_default(),
        });
        let mut targets: Vec<Target> = targets.collect();
        targets.sort_by_cached_key(|target| (last.contains(&target.node), Arc::clone(&target.node)));
        targets
    }

    fn update(&mut self, cache: &Cache) {
        let present = cache.resource(&GroupResource::new("", "nodes")).list(&Filter::default(), cache.applied()).items;
        let nodes = present.iter().map(|object| {
            let before = self.nodes.remove(&object.name);
            let passes = before.as_ref().filter(|before| before.kubelet.is_some()).map_or(0, |before| before.passes);
            let kubelet = match before.filter(|before| before.revision == object.revision) {
                Some(before) => before.kubelet,
                None => kubelet(object),
            };
            (Arc::clone(&object.name), ReadNode { revision: object.revision, kubelet, passes })
        });
        self.nodes = nodes.collect();
    }
}

/// The server of a ready node; `None` if the node reports no address, as for the metrics server.
fn kubelet(object: &Object) -> Option<Kubelet> {
    let node = object.value();
    if condition::is_true(&node, "Ready") { Kubelet::at_address(&node, &object.name) } else { None }
}

fn bound_pods(cache: &Cache) -> HashMap<Arc<str>, Vec<PodName>> {
    let mut bound: HashMap<Arc<str>, Vec<PodName>> = HashMap::new();
    for pod in cache.resource(&GroupResource::new("", "pods")).list(&Filter::default(), cache.applied()).items {
        if let Some(node) = pod.node() {
            bound.entry(Arc::clone(node)).or_default().push((Arc::clone(&pod.namespace), Arc::clone(&pod.name)));
        }
    }
    bound
}
