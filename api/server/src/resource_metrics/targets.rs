//! The nodes that are read, and the Pods of which each may speak.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use api_cache::{Cache, Filter, Object};
use api_model::kind::GroupResource;
use api_usage::Readings;

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
    /// With the revision of the Node; `None`: it is not ready.
    nodes: HashMap<Arc<str>, (u64, Option<Kubelet>)>,
}

impl Targets {
    /// Whether there are metrics of every ready node.
    pub(super) fn are_measured(&mut self, cache: &Cache, readings: &Readings) -> bool {
        self.update(cache);
        self.nodes.iter().filter(|(_, (_, kubelet))| kubelet.is_some()).all(|(name, _)| readings.of_node(name).is_some())
    }

    /// Every ready node. Those in `last` come last: whoever does not answer takes the others no time.
    pub(super) fn of_pass(&mut self, cache: &Cache, last: &HashSet<Arc<str>>) -> Vec<Target> {
        self.update(cache);
        let ready = || self.nodes.iter().filter_map(|(name, (_, kubelet))| Some((name, kubelet.as_ref()?)));
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
            let before = self.nodes.remove(&object.name).filter(|(revision, _)| *revision == object.revision);
            (Arc::clone(&object.name), before.unwrap_or_else(|| (object.revision, kubelet(object))))
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
