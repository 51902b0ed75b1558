//! The controller of the provisioner's volumes, which removes those whose claims are gone.
//!
//! Writes the finalizer of volumes; when the claim is gone and the policy is `Delete`, it has the node remove the directory and then
//! deletes the volume. The finalizer outlives a kill in between. Nodes may be away, or in the hands of an attacker: the controller has a
//! queue of its own, so that no claim waits for a node, and a share of its workers for each node.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api_client::events::{Recorder, reference};
use api_client::informer::{Change, Informer, ObjectKey};
use api_model::local_path::NODE;
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use kube::api::DeleteParams;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::FINALIZER;
use super::directory::{self, Removal};
use super::volumes::{self, Action};
use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, nodes, writes};

/// The longest wait between two attempts to remove a directory.
const REMOVE_AGAIN: Duration = Duration::from_secs(60);
/// A failure that took so long says something about its node: the other volumes of the node wait, too.
const SLOW: Duration = Duration::from_secs(5);

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    node: String,
    volume: String,
}

impl Key {
    fn of(volume: &PersistentVolume) -> Self {
        let node = meta::annotation(&volume.metadata, NODE).unwrap_or_default();
        Self { node: node.to_owned(), volume: meta::name(&volume.metadata).to_owned() }
    }
}

/// The controller.
pub struct LocalPathRemoval {
    client: kube::Client,
    recorder: Recorder,
    volumes: Informer<PersistentVolume>,
    nodes: Informer<Node>,
    slow: SlowNodes,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext, recorder: Recorder, volumes: Informer<PersistentVolume>, nodes: Informer<Node>) {
    let queue = Arc::new(WorkQueue::new("local_path_removal"));
    context.feed_from(&volumes, &queue, |change: &Change<PersistentVolume>| {
        change.new.iter().filter(|volume| volumes::is_ours(volume)).map(|volume| Key::of(volume)).collect()
    });
    let cache = volumes.clone();
    // A node that came back, or went for good, ends the wait of volumes that are to be removed from it.
    context.feed_from(&nodes, &queue, move |change: &Change<Node>| {
        let is_ready = |node: &Option<Arc<Node>>| node.as_deref().map(nodes::is_ready);
        if change.old.is_none() || is_ready(&change.old) == is_ready(&change.new) {
            return Vec::new();
        }
        let released = cache.list().into_iter().filter(|volume| volumes::is_ours(volume) && volumes::is_to_go(volume));
        released.map(|volume| Key::of(&volume)).collect()
    });
    let client = context.client();
    context.run(Arc::new(LocalPathRemoval { client, recorder, volumes, nodes, slow: SlowNodes::default() }), queue);
}

impl Controller for LocalPathRemoval {
    const NAME: &'static str = "local-path-removal-controller";
    const WORKERS: usize = 16;
    type Key = Key;

    /// Passes wait for nodes.
    fn flow(key: &Key) -> Option<&str> {
        Some(&key.node)
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let Some(volume) = self.volumes.get(&ObjectKey::new("", &key.volume)) else { return Ok(Next::OnChange) };
        match volumes::plan(&volume) {
            Action::Nothing => {}
            Action::Protect => writes::add_finalizer(&self.client, volume.as_ref(), FINALIZER).await?,
            Action::Release => drop(writes::remove_finalizer(&self.client, volume.as_ref(), FINALIZER).await?),
            Action::Remove { node } => return self.remove(&key.volume, &node).await,
        }
        Ok(Next::OnChange)
    }
}

impl LocalPathRemoval {
    /// Removes the directory, then the volume, then its finalizer. The data of a node that is gone went with it.
    async fn remove(&self, name: &str, node: &str) -> Result<Next, Failure> {
        if let Some(rest) = self.slow.rest(node, Instant::now()) {
            return Ok(Next::After(rest));
        }
        let key = ObjectKey::new("", name);
        // The cache may be older than the write of somebody who keeps the data.
        let stored = writes::get::<PersistentVolume>(&self.client, &key).await?;
        let is_to_go =
            |volume: &PersistentVolume| volumes::is_ours(volume) && volumes::plan(volume) == Action::Remove { node: node.to_owned() };
        let Some(volume) = stored.filter(is_to_go) else { return Ok(Next::OnChange) };
        let removal = match self.node(node).await? {
            Some(found) if !nodes::is_ready(&found) => {
                self.recorder.warning(&reference(&volume), "VolumeFailedDelete", format!("node {node:?} is not ready"));
                return Ok(Next::After(REMOVE_AGAIN));
            }
            Some(_) => self.remove_directory(name, node).await,
            None => {
                tracing::warn!(volume = name, node, "the node of a volume does not exist any more; its directory is left alone");
                Removal::Done
            }
        };
        if let Removal::Failed(why) = removal {
            self.recorder.warning(&reference(&volume), "VolumeFailedDelete", why.clone());
            let waiting_for = format!("removing the directory on node {node}: {why}");
            return Err(Failure::Unfinished { object: format!("PersistentVolume {name}"), waiting_for, at_most: REMOVE_AGAIN });
        }
        if !meta::is_deleting(&volume.metadata) {
            writes::delete_unchanged(&self.client, &volume, DeleteParams::default()).await?;
        }
        if let Some(left) =
            writes::get::<PersistentVolume>(&self.client, &key).await?.filter(|left| left.metadata.uid == volume.metadata.uid)
        {
            writes::remove_finalizer(&self.client, &left, FINALIZER).await?;
        }
        tracing::info!(volume = name, node, "released volume deleted");
        Ok(Next::OnChange)
    }

    async fn node(&self, name: &str) -> Result<Option<Arc<Node>>, Failure> {
        let key = ObjectKey::new("", name);
        match self.nodes.get(&key) {
            Some(node) => Ok(Some(node)),
            None => Ok(writes::get::<Node>(&self.client, &key).await?.map(Arc::new)),
        }
    }

    async fn remove_directory(&self, volume: &str, node: &str) -> Removal {
        let began = Instant::now();
        let removal = directory::remove(&self.client, node, volume).await;
        if matches!(removal, Removal::Failed(_)) {
            self.slow.observe(node, began, Instant::now());
        }
        removal
    }
}

/// The nodes on which a removal failed slowly, each with the time until which no other one is tried. An entry goes with a later one.
#[derive(Default)]
struct SlowNodes {
    until: Mutex<HashMap<String, Instant>>,
}

impl SlowNodes {
    /// How long the node is left alone from now on.
    fn rest(&self, node: &str, now: Instant) -> Option<Duration> {
        let until = self.until.lock().get(node).copied()?;
        Some(until.saturating_duration_since(now)).filter(|rest| !rest.is_zero())
    }

    /// A removal that began then failed now.
    fn observe(&self, node: &str, began: Instant, now: Instant) {
        if now.duration_since(began) >= SLOW {
            let mut until = self.until.lock();
            until.retain(|_, until| *until > now);
            until.insert(node.to_owned(), now + REMOVE_AGAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_fails_slowly_is_left_alone_for_a_minute() {
        let (nodes, start) = (SlowNodes::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        nodes.observe("quick", at(0), at(4));
        nodes.observe("slow", at(0), at(30));
        assert_eq!(nodes.rest("quick", at(30)), None);
        assert_eq!(nodes.rest("slow", at(30)), Some(Duration::from_secs(60)));
        assert_eq!(nodes.rest("slow", at(89)), Some(Duration::from_secs(1)));
        assert_eq!(nodes.rest("slow", at(90)), None);
        nodes.observe("other", at(90), at(100));
        assert_eq!(nodes.until.lock().len(), 1, "the entry of the first one is gone");
    }
}
