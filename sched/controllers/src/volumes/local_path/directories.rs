//! The controller of the provisioner's volumes, which has nodes remove directories and give them larger capacities.
//!
//! Writes the finalizer of volumes; when the claim is gone and the policy is `Delete`, it has the node remove the directory and then
//! deletes the volume. The finalizer outlives a kill in between. When a volume has more capacity than the status of its claim says, it has
//! the node enforce the new one and then writes the status. Nodes may be away, or in the hands of an attacker: the controller has a
//! queue of its own, so that no new claim waits for a node, and a share of its workers for each node.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api_client::events::{Recorder, reference};
use api_client::informer::{Change, Informer, ObjectKey};
use api_model::local_path::{NODE, PROVISIONER};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::DeleteParams;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::super::object;
use super::FINALIZER;
use super::directory::{self, Outcome};
use super::volumes::{self, Action};
use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, nodes, writes};

/// The longest wait between two requests for a directory.
const AGAIN: Duration = Duration::from_secs(60);
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
pub struct LocalPathDirectories {
    client: kube::Client,
    recorder: Recorder,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    nodes: Informer<Node>,
    slow_removals: SlowNodes,
    slow_growths: SlowNodes,
}

/// Registers the controller.
pub fn build(
    context: &mut ControllerContext,
    recorder: Recorder,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    nodes: Informer<Node>,
) {
    let queue = Arc::new(WorkQueue::new("local_path_directories"));
    context.feed_from(&volumes, &queue, |change: &Change<PersistentVolume>| {
        change.new.iter().filter(|volume| volumes::is_ours(volume)).map(|volume| Key::of(volume)).collect()
    });
    let cache = volumes.clone();
    context.feed_from(&claims, &queue, move |change: &Change<PersistentVolumeClaim>| {
        let name = change.new.as_ref().and_then(|claim| claim.spec.as_ref()?.volume_name.clone());
        let volume = name.and_then(|name| cache.get(&ObjectKey::new("", name)));
        volume.filter(|volume| volumes::is_ours(volume)).map(|volume| Key::of(&volume)).into_iter().collect()
    });
    let (cache, cached_claims) = (volumes.clone(), claims.clone());
    // A node that came back, or went for good, ends the wait of its volumes.
    context.feed_from(&nodes, &queue, move |change: &Change<Node>| {
        let is_ready = |node: &Option<Arc<Node>>| node.as_deref().map(nodes::is_ready);
        if change.old.is_none() || is_ready(&change.old) == is_ready(&change.new) {
            return Vec::new();
        }
        let waits = |volume: &PersistentVolume| {
            let claim = object::claim_key(volume).and_then(|key| cached_claims.get(&key));
            matches!(volumes::plan(volume, claim.as_ref()), Action::Remove { .. } | Action::Grow { .. })
        };
        let waiting = cache.list().into_iter().filter(|volume| volumes::is_ours(volume) && waits(volume));
        waiting.map(|volume| Key::of(&volume)).collect()
    });
    let client = context.client();
    let (slow_removals, slow_growths) = (SlowNodes::default(), SlowNodes::default());
    context.run(Arc::new(LocalPathDirectories { client, recorder, claims, volumes, nodes, slow_removals, slow_growths }), queue);
}

impl Controller for LocalPathDirectories {
    const NAME: &'static str = "local-path-directories-controller";
    const WORKERS: usize = 16;
    type Key = Key;

    /// Passes wait for nodes.
    fn flow(key: &Key) -> Option<&str> {
        Some(&key.node)
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let Some(volume) = self.volumes.get(&ObjectKey::new("", &key.volume)) else { return Ok(Next::OnChange) };
        let claim = object::claim_key(&volume).and_then(|key| self.claims.get(&key));
        match volumes::plan(&volume, claim.as_ref()) {
            Action::Nothing => {}
            Action::Protect => writes::add_finalizer(&self.client, volume.as_ref(), FINALIZER).await?,
            Action::Release => drop(writes::remove_finalizer(&self.client, volume.as_ref(), FINALIZER).await?),
            Action::Remove { node } => return self.remove(&key.volume, &node).await,
            Action::Grow { node, claim, capacity } => return self.grow(&volume, &claim, &node, capacity).await,
        }
        Ok(Next::OnChange)
    }
}

impl LocalPathDirectories {
    /// Removes the directory, then the volume, then its finalizer. The data of a node that is gone went with it.
    async fn remove(&self, name: &str, node: &str) -> Result<Next, Failure> {
        if let Some(rest) = self.slow_removals.rest(node, Instant::now()) {
            return Ok(Next::After(rest));
        }
        let key = ObjectKey::new("", name);
        // The cache may be older than the write of somebody who keeps the data.
        let stored = writes::get::<PersistentVolume>(&self.client, &key).await?;
        let is_to_go =
            |volume: &PersistentVolume| volumes::is_ours(volume) && volumes::plan(volume, None) == Action::Remove { node: node.to_owned() };
        let Some(volume) = stored.filter(is_to_go) else { return Ok(Next::OnChange) };
        let outcome = self.on_node(node, &volume, &self.slow_removals, directory::remove(&self.client, node, &volume)).await?;
        if let Outcome::Away(why) | Outcome::Failed(why) = &outcome {
            self.recorder.warning(&reference(&volume), "VolumeFailedDelete", why.clone());
            return again(&outcome, name, format!("removing the directory on node {node}: {why}"));
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

    /// Has the node enforce the capacity, then writes it to the status of the claim.
    async fn grow(
        &self,
        volume: &PersistentVolume,
        claim: &PersistentVolumeClaim,
        node: &str,
        capacity: Quantity,
    ) -> Result<Next, Failure> {
        if let Some(rest) = self.slow_growths.rest(node, Instant::now()) {
            return Ok(Next::After(rest));
        }
        let name = meta::name(&volume.metadata);
        let outcome = self.on_node(node, volume, &self.slow_growths, directory::grow(&self.client, node, volume)).await?;
        if let Outcome::Away(why) | Outcome::Failed(why) = &outcome {
            let words = format!("resize volume {name:?} by resizer {PROVISIONER:?} failed: {why}");
            self.recorder.warning(&reference(claim), "VolumeResizeFailed", words);
            return again(&outcome, name, format!("giving the directory on node {node} its new capacity: {why}"));
        }
        writes::patch_status(&self.client, claim, json!({"capacity": {"storage": capacity}})).await?;
        self.recorder.normal(&reference(claim), "VolumeResizeSuccessful", "Resize volume succeeded");
        Ok(Next::OnChange)
    }

    /// Makes a request to a node that is ready. What would be asked of a node that does not exist any more is done.
    async fn on_node(
        &self,
        node: &str,
        volume: &PersistentVolume,
        slow: &SlowNodes,
        request: impl Future<Output = Outcome>,
    ) -> Result<Outcome, Failure> {
        match self.node(node).await? {
            Some(object) if !nodes::is_ready(&object) => return Ok(Outcome::Away(format!("node {node:?} is not ready"))),
            Some(_) => {}
            None => {
                let volume = meta::name(&volume.metadata);
                tracing::warn!(volume, node, "the node of a volume does not exist any more; its directory is left alone");
                return Ok(Outcome::Done);
            }
        }
        let began = Instant::now();
        let outcome = request.await;
        if matches!(outcome, Outcome::Failed(_)) {
            slow.observe(node, began, Instant::now());
        }
        Ok(outcome)
    }
}

/// When a request is made again that was not made, or failed. The change of a node that is away comes by itself.
fn again(outcome: &Outcome, volume: &str, waiting_for: String) -> Result<Next, Failure> {
    match outcome {
        Outcome::Away(_) => Ok(Next::After(AGAIN)),
        _ => Err(Failure::Unfinished { object: format!("PersistentVolume {volume}"), waiting_for, at_most: AGAIN }),
    }
}

/// The nodes on which a request failed slowly, each with the time until which no other one is tried. An entry goes with a later one.
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

    /// A request that began then failed now.
    fn observe(&self, node: &str, began: Instant, now: Instant) {
        if now.duration_since(began) >= SLOW {
            let mut until = self.until.lock();
            until.retain(|_, until| *until > now);
            until.insert(node.to_owned(), now + AGAIN);
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
