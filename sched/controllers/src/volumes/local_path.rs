//! Provisioner of volumes that are directories of nodes ([the record](../../../../docs/decisions/0021-local-volumes.md) says why it
//! is here).
//!
//! Watches claims, volumes, StorageClasses and Nodes. Creates a PersistentVolume of source `local` for a claim of its classes on
//! the node that the scheduler chose. When the claim is gone and the policy is `Delete`, it has the node remove the directory,
//! then deletes the volume; the volume's finalizer outlives a kill in between. It makes no directory: the node does when a Pod
//! uses the volume. It takes part in binding as any provisioner outside of upstream's process.

mod claims;
mod volumes;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api_client::events::{Recorder, reference};
use api_client::informer::{Change, Informer, ObjectKey, UNBOUND_BY_CLASS};
use api_model::local_path::{PROVISIONER, REMOVAL};
use api_model::storage::{SELECTED_NODE, STORAGE_PROVISIONERS};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::DeleteParams;
use serde_json::json;

use super::{class, object};
use crate::context::ControllerContext;
use crate::failure::{During, Failure};
use crate::note::normal;
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, nodes, note, writes};

/// Upstream's finalizer of provisioners outside of its process.
const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// The longest wait between two attempts to remove a directory.
const REMOVE_AGAIN: Duration = Duration::from_secs(60);

/// A piece of work.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A claim.
    Claim(ObjectKey),
    /// A volume, by its name.
    Volume(String),
}

/// The controller.
pub struct LocalPath {
    client: kube::Client,
    recorder: Recorder,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    nodes: Informer<Node>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("local_path"));
    let claims = context.feed(&queue, |change: &Change<PersistentVolumeClaim>| {
        let own = change.new.iter().filter(|claim| is_ours(claim));
        own.map(|claim| Key::Claim(ObjectKey::from(&claim.metadata))).collect()
    });
    let volumes = context.feed(&queue, |change: &Change<PersistentVolume>| {
        let own = change.new.iter().filter(|volume| volumes::is_ours(volume));
        own.flat_map(|volume| object::claim_key(volume).map(Key::Claim).into_iter().chain([key(volume)])).collect()
    });
    let cache = claims.clone();
    let classes = context.feed(&queue, move |change: &Change<StorageClass>| {
        let waiting = change.new.iter().flat_map(|class| cache.indexed(UNBOUND_BY_CLASS, meta::name(&class.metadata)));
        waiting.filter(|claim| is_ours(claim)).map(|claim| Key::Claim(ObjectKey::from(&claim.metadata))).collect()
    });
    let cache = volumes.clone();
    // A node that came back, or went for good, ends the wait of volumes that are to be removed from it.
    let nodes = context.feed(&queue, move |change: &Change<Node>| {
        let is_ready = |node: &Option<Arc<Node>>| node.as_deref().map(nodes::is_ready);
        if change.old.is_none() || is_ready(&change.old) == is_ready(&change.new) {
            return Vec::new();
        }
        let released = cache.list().into_iter().filter(|volume| volumes::is_ours(volume) && volumes::is_to_go(volume));
        released.map(|volume| key(&volume)).collect()
    });
    let (client, recorder) = (context.client(), context.recorder(PROVISIONER));
    context.run(Arc::new(LocalPath { client, recorder, claims, volumes, classes, nodes }), queue);
}

fn key(volume: &PersistentVolume) -> Key {
    Key::Volume(meta::name(&volume.metadata).to_owned())
}

/// Whether the claim waits for, or has, a volume of this provisioner.
fn is_ours(claim: &PersistentVolumeClaim) -> bool {
    STORAGE_PROVISIONERS.iter().any(|key| meta::annotation(&claim.metadata, key) == Some(PROVISIONER))
}

impl Controller for LocalPath {
    const NAME: &'static str = "local-path-provisioner-controller";
    const WORKERS: usize = 8;
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        match key {
            Key::Claim(key) => {
                if let Some(claim) = self.claims.get(key) {
                    self.claim(&claim).await?;
                }
            }
            Key::Volume(name) => {
                if let Some(volume) = self.volumes.get(&ObjectKey::new("", name)) {
                    self.volume(&volume).await?;
                }
            }
        }
        Ok(Next::OnChange)
    }
}

impl LocalPath {
    async fn claim(&self, claim: &PersistentVolumeClaim) -> Result<(), Failure> {
        let get_node = |name: &str| self.nodes.get(&ObjectKey::new("", name));
        let of_cluster = claims::Cluster {
            class: self.classes.get(&ObjectKey::new("", class::of_claim(claim))),
            node: meta::annotation(&claim.metadata, SELECTED_NODE).and_then(get_node),
            volume: self.volumes.get(&ObjectKey::new("", claims::volume_name(claim))),
        };
        let object = reference(claim);
        match claims::plan(claim, &of_cluster) {
            claims::Action::Nothing => {}
            claims::Action::Refuse { why, reschedule } => {
                note::record(&self.recorder, &object, vec![why]);
                if reschedule {
                    writes::patch(&self.client, claim, json!({"metadata": {"annotations": {SELECTED_NODE: null}}})).await?;
                }
            }
            claims::Action::Create(volume) => {
                let name = ObjectKey::from(&claim.metadata).to_string();
                let begins = normal("Provisioning", format!("External provisioner is provisioning volume for claim {name:?}"));
                note::record(&self.recorder, &object, vec![begins]);
                match writes::create(&self.client, volume.as_ref()).await {
                    Ok(made) => {
                        let volume = meta::name(&made.metadata);
                        tracing::info!(claim = name, volume, "volume provisioned");
                        let done = normal("ProvisioningSucceeded", format!("Successfully provisioned volume {volume}"));
                        note::record(&self.recorder, &object, vec![done]);
                    }
                    // The cache did not have it yet.
                    Err(failure) if failure.is_already_exists() => {}
                    Err(failure) => return Err(failure),
                }
            }
            claims::Action::Grow { volume, capacity } => {
                writes::patch(&self.client, volume.as_ref(), json!({"spec": {"capacity": {"storage": capacity}}})).await?;
            }
            claims::Action::Grown(capacity) => {
                writes::patch_status(&self.client, claim, json!({"capacity": {"storage": capacity}})).await?;
                note::record(&self.recorder, &object, vec![normal("VolumeResizeSuccessful", "Resize volume succeeded")]);
            }
        }
        Ok(())
    }

    async fn volume(&self, volume: &PersistentVolume) -> Result<(), Failure> {
        match volumes::plan(volume) {
            volumes::Action::Nothing => Ok(()),
            volumes::Action::Protect => writes::add_finalizer(&self.client, volume, FINALIZER).await,
            volumes::Action::Release => writes::remove_finalizer(&self.client, volume, FINALIZER).await.map(drop),
            volumes::Action::Remove { node } => self.remove(volume, &node).await,
        }
    }

    /// Removes the directory, then the volume, then its finalizer.
    async fn remove(&self, volume: &PersistentVolume, node: &str) -> Result<(), Failure> {
        let name = meta::name(&volume.metadata);
        if let Err(failure) = self.remove_directory(name, node).await {
            let message = failure.message();
            self.recorder.warning(&reference(volume), "VolumeFailedDelete", message.clone());
            let waiting_for = format!("removing the directory on node {node}: {message}");
            return Err(Failure::Unfinished { object: format!("PersistentVolume {name}"), waiting_for, at_most: REMOVE_AGAIN });
        }
        if !meta::is_deleting(&volume.metadata) {
            writes::delete(&self.client, volume, DeleteParams::default()).await?;
        }
        match writes::get::<PersistentVolume>(&self.client, &ObjectKey::new("", name)).await? {
            Some(left) if left.metadata.uid == volume.metadata.uid => drop(writes::remove_finalizer(&self.client, &left, FINALIZER).await?),
            _ => {}
        }
        tracing::info!(volume = name, node, "volume removed");
        Ok(())
    }

    /// Has the node remove the directory. The data of a node that is gone went with it.
    async fn remove_directory(&self, name: &str, node: &str) -> Result<(), Failure> {
        let key = ObjectKey::new("", node);
        if self.nodes.get(&key).is_none() && writes::get::<Node>(&self.client, &key).await?.is_none() {
            tracing::warn!(volume = name, node, "the node of a volume does not exist any more; its directory is left alone");
            return Ok(());
        }
        let path = format!("/api/v1/nodes/{node}/proxy/{REMOVAL}/{name}");
        let object = || format!("the directory of PersistentVolume {name} on node {node}");
        let request = http::Request::delete(path).body(Vec::new()).map_err(kube::core::request::Error::BuildRequest);
        let request = request.map_err(kube::Error::BuildRequest).during("removing", object())?;
        self.client.request_text(request).await.during("removing", object()).map(drop)
    }
}
