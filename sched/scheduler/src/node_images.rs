//! A watch of the images that Nodes report, for `ImageLocality`. The informer of Nodes, which other parts of the process share, drops
//! them: a name may have a hundred bytes, and a Node a hundred names. This watch reads nothing else of a Node, and holds what it read only
//! until the scheduler takes it; the cache of the scheduler has each name once.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api_client::informer::{Reflector, Store};
use api_tasks::Tasks;
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::core::v1::ContainerImage;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::Notify;

/// The part of a Node that is read.
#[derive(Clone, Debug, Deserialize)]
struct NodeStatusImages {
    metadata: ObjectMeta,
    status: Option<Status>,
}

#[derive(Clone, Debug, Deserialize)]
struct Status {
    images: Option<Vec<ContainerImage>>,
}

impl Resource for NodeStatusImages {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        "Node".into()
    }

    fn group(_: &()) -> Cow<'_, str> {
        "".into()
    }

    fn version(_: &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural(_: &()) -> Cow<'_, str> {
        "nodes".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// What the watch has read since the scheduler took the changes before.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ImageChanges {
    /// There are no other nodes than these and those that changed.
    pub only: Option<BTreeSet<String>>,
    /// The newest images of nodes, by name.
    pub changed: BTreeMap<String, Vec<ContainerImage>>,
}

/// The changes that the scheduler has not taken.
#[derive(Default)]
struct Pending {
    changes: Mutex<ImageChanges>,
    arrived: Notify,
}

impl Pending {
    fn add(&self, change: impl FnOnce(&mut ImageChanges)) {
        change(&mut self.changes.lock());
        self.arrived.notify_one();
    }

    async fn take(&self) -> ImageChanges {
        loop {
            let changes = std::mem::take(&mut *self.changes.lock());
            if changes != ImageChanges::default() {
                return changes;
            }
            self.arrived.notified().await;
        }
    }
}

impl Store<NodeStatusImages> for Arc<Pending> {
    type Key = String;

    fn key(node: &NodeStatusImages) -> String {
        node.metadata.name.clone().unwrap_or_default()
    }

    fn put(&self, node: NodeStatusImages) {
        let name = Self::key(&node);
        let images = node.status.and_then(|status| status.images).unwrap_or_default();
        self.add(|changes| drop(changes.changed.insert(name, images)));
    }

    fn remove(&self, node: &NodeStatusImages) {
        self.add(|changes| drop(changes.changed.insert(Self::key(node), Vec::new())));
    }

    fn complete(&self, listed: &BTreeSet<String>) {
        self.add(|changes| {
            changes.changed.retain(|name, _| listed.contains(name));
            changes.only = Some(listed.clone());
        });
    }
}

/// The watch.
pub(crate) struct ImageWatch {
    pending: Arc<Pending>,
    _reflector: Reflector,
}

impl ImageWatch {
    /// Starts the watch.
    pub fn new(client: Client, tasks: &Tasks) -> Self {
        let pending = Arc::new(Pending::default());
        let nodes: Api<NodeStatusImages> = Api::all(client);
        Self { pending: Arc::clone(&pending), _reflector: Reflector::start(nodes, "nodes", tasks, pending) }
    }
}

/// The next changes. Dropping the future loses nothing. Without a watch, there are none.
pub(crate) async fn next(watch: Option<&ImageWatch>) -> ImageChanges {
    match watch {
        Some(watch) => watch.pending.take().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn the_scheduler_takes_the_newest_of_each_node_once() {
        let node = |name: &str, size: i64| -> NodeStatusImages {
            let images = json!([{"names": ["a:1"], "sizeBytes": size}]);
            serde_json::from_value(json!({"metadata": {"name": name}, "status": {"images": images}})).expect("a Node")
        };
        let sizes = |changes: &ImageChanges| -> Vec<String> {
            let size = |images: &[ContainerImage]| images.first().and_then(|image| image.size_bytes).unwrap_or_default();
            changes.changed.iter().map(|(name, images)| format!("{name}={}", size(images))).collect()
        };
        let pending = Arc::new(Pending::default());
        ["gone", "a", "b"].iter().for_each(|name| pending.put(node(name, 1)));
        pending.put(node("a", 2));
        let listed = ["a", "b"].map(str::to_owned).into();
        pending.complete(&listed);
        pending.remove(&node("b", 1));
        pending.put(node("new", 3));
        let changes = pending.take().await;
        assert_eq!((sizes(&changes), changes.only), (["a=2", "b=0", "new=3"].map(str::to_owned).to_vec(), Some(listed)));
        let nothing = tokio::time::timeout(std::time::Duration::from_millis(10), pending.take()).await;
        assert!(nothing.is_err(), "{nothing:?}");
        pending.put(node("a", 4));
        assert_eq!(sizes(&pending.take().await), ["a=4"]);
    }
}
