//! Provisioner of volumes that are directories of nodes ([the record](../../../../docs/decisions/0021-local-volumes.md) says why it
//! is here).
//!
//! Watches claims, volumes, StorageClasses and Nodes. Creates a PersistentVolume of source `local` for a claim of its classes on
//! the node that the scheduler chose. It takes part in binding as any provisioner outside of upstream's process. When the claim is gone
//! and the policy is `Delete`, it has the node remove the directory, then deletes the volume. It makes no directory: the node does when a
//! Pod uses the volume, or when the volume gets a larger capacity.

mod claims;
mod directories;
mod directory;
mod volumes;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use api_client::events::{Recorder, reference};
use api_client::informer::{Change, Informer, ObjectKey, UNBOUND_BY_CLASS};
use api_model::local_path::PROVISIONER;
use api_model::storage::{SELECTED_NODE, STORAGE_PROVISIONERS};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::json;

use super::{class, object};
use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::note::normal;
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, note, writes};

/// Upstream's finalizer of provisioners outside of its process.
const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// The controller of claims; its keys are claims.
pub struct LocalPath {
    client: kube::Client,
    recorder: Recorder,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    nodes: Informer<Node>,
}

/// Registers the controller of claims and that of volumes.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("local_path"));
    let claims = context.feed(&queue, |change: &Change<PersistentVolumeClaim>| {
        let own = change.new.iter().filter(|claim| is_ours(claim));
        own.map(|claim| ObjectKey::from(&claim.metadata)).collect()
    });
    let volumes = context.feed(&queue, |change: &Change<PersistentVolume>| {
        let own = change.new.iter().filter(|volume| volumes::is_ours(volume));
        own.filter_map(|volume| object::claim_key(volume)).collect()
    });
    let cache = claims.clone();
    let classes = context.feed(&queue, move |change: &Change<StorageClass>| {
        let waiting = change.new.iter().flat_map(|class| cache.indexed(UNBOUND_BY_CLASS, meta::name(&class.metadata)));
        waiting.filter(|claim| is_ours(claim)).map(|claim| ObjectKey::from(&claim.metadata)).collect()
    });
    let (client, recorder, nodes) = (context.client(), context.recorder(PROVISIONER), context.informer::<Node>());
    let controller =
        LocalPath { client, recorder: recorder.clone(), claims: claims.clone(), volumes: volumes.clone(), classes, nodes: nodes.clone() };
    context.run(Arc::new(controller), queue);
    directories::build(context, recorder, claims, volumes, nodes);
}

/// Whether the claim waits for, or has, a volume of this provisioner.
fn is_ours(claim: &PersistentVolumeClaim) -> bool {
    STORAGE_PROVISIONERS.iter().any(|key| meta::annotation(&claim.metadata, key) == Some(PROVISIONER))
}

impl Controller for LocalPath {
    const NAME: &'static str = "local-path-provisioner-controller";
    const WORKERS: usize = 8;
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        if let Some(claim) = self.claims.get(key) {
            self.claim(&claim).await?;
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
        }
        Ok(())
    }
}
