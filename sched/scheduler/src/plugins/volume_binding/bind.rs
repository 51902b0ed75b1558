//! The writes of PreBind: volumes get the claims that they were chosen for, claims get the node for which their volumes are provisioned.
//! Then the volume controller and the provisioners complete the bindings; the Pod waits for them, within the time of the plugin's arguments.

use std::time::Duration;

use api_client::error::chain;
use api_client::informer::{Informer, ObjectKey};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams};
use sched_framework::{Reason, Refusal, SELECTED_NODE, annotation, is_fully_bound, selector_matches, volume_of_claim};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{BOUND_BY_CONTROLLER, PodVolumes};
use crate::plugins::Handle;

/// The longest time of the writes for a Pod.
const WRITES_MAX: Duration = Duration::from_secs(30);

/// Binds the volumes of Pods.
pub(super) struct Binder {
    timeout: Duration,
    client: kube::Client,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    nodes: Informer<Node>,
    changes: watch::Receiver<u64>,
}

/// The objects as they were written.
struct Written {
    /// Volumes with the keys of their claims.
    bindings: Vec<(PersistentVolume, ObjectKey)>,
    provisions: Vec<PersistentVolumeClaim>,
}

impl Binder {
    pub fn new(timeout: Duration, handle: &Handle) -> Self {
        Self {
            timeout,
            client: handle.client.clone(),
            claims: handle.claims.clone(),
            volumes: handle.volumes.clone(),
            nodes: handle.nodes.clone(),
            changes: handle.changes.subscribe(),
        }
    }

    /// Writes what was chosen, and waits until the claims are bound.
    pub async fn bind(&self, volumes: PodVolumes, node: &str) -> Result<(), Refusal> {
        let late = || failed("binding volumes: context deadline exceeded".to_owned());
        let written = tokio::time::timeout(WRITES_MAX, self.write(&volumes, node)).await.map_err(|_| late())?;
        let written = written.map_err(|error| failed(chain(&error)))?;
        tokio::time::timeout(self.timeout, self.bound(&written, node)).await.map_err(|_| late())?
    }

    async fn write(&self, PodVolumes { bindings, provisions }: &PodVolumes, node: &str) -> Result<Written, kube::Error> {
        let mut written = Written { bindings: Vec::new(), provisions: Vec::new() };
        for (claim, volume) in bindings {
            let by = annotation(&volume.metadata, BOUND_BY_CONTROLLER);
            let claim_ref = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            let patch = json!({"metadata": metadata(&volume.metadata, BOUND_BY_CONTROLLER, by), "spec": {"claimRef": claim_ref}});
            let name = volume.metadata.name.as_deref().unwrap_or_default();
            let api: Api<PersistentVolume> = Api::all(self.client.clone());
            let volume = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            written.bindings.push((volume, ObjectKey::from(&claim.metadata)));
        }
        for claim in provisions {
            let patch = json!({"metadata": metadata(&claim.metadata, SELECTED_NODE, Some(node))});
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
            let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
            written.provisions.push(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?);
        }
        Ok(written)
    }

    async fn bound(&self, written: &Written, node: &str) -> Result<(), Refusal> {
        let mut changes = self.changes.clone();
        loop {
            // Before the objects are read: a change after that ends the wait.
            changes.borrow_and_update();
            if self.check(written, node).map_err(|message| failed(format!("binding volumes: {message}")))? {
                return Ok(());
            }
            if changes.changed().await.is_err() {
                return Err(failed("binding volumes: the scheduler ended".to_owned()));
            }
        }
    }

    /// Whether all claims are bound. The error says why they will not be.
    fn check(&self, written: &Written, node: &str) -> Result<bool, Reason> {
        let Some(node) = self.nodes.get(&ObjectKey::new("", node)) else {
            return Err(format!("failed to get node {node:?}: node {node:?} not found").into());
        };
        let mut are_bound = true;
        for (volume, claim) in &written.bindings {
            are_bound &= self.check_binding(volume, claim, &node)?;
        }
        for claim in &written.provisions {
            are_bound &= self.check_provision(claim, &node)?;
        }
        Ok(are_bound)
    }

    fn check_binding(&self, written: &PersistentVolume, claim: &ObjectKey, node: &Node) -> Result<bool, Reason> {
        let name = written.metadata.name.as_deref().unwrap_or_default();
        let missing = |kind: &str, key: &str| Reason::from(format!("failed to check binding: could not find v1.{kind} {key:?}"));
        let volume = self.volumes.get(&ObjectKey::new("", name)).ok_or_else(|| missing("PersistentVolume", name))?;
        let claim = self.claims.get(claim).ok_or_else(|| missing("PersistentVolumeClaim", &claim.to_string()))?;
        if revision(&volume.metadata) < revision(&written.metadata) {
            return Ok(false);
        }
        check_affinity(&volume, node)?;
        let claim_ref = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        if claim_ref.and_then(|reference| reference.uid.as_deref()).is_none_or(str::is_empty) {
            return Err(format!("ClaimRef got reset for pv {name:?}").into());
        }
        Ok(is_fully_bound(&claim))
    }

    fn check_provision(&self, written: &PersistentVolumeClaim, node: &Node) -> Result<bool, Reason> {
        let key = ObjectKey::from(&written.metadata);
        let Some(claim) = self.claims.get(&key) else {
            return Err(format!("failed to check provisioning pvc: could not find v1.PersistentVolumeClaim {:?}", key.to_string()).into());
        };
        if revision(&claim.metadata) < revision(&written.metadata) {
            return Ok(false);
        }
        // A provisioner that cannot provision a volume for the node removes the annotation.
        if annotation(&claim.metadata, SELECTED_NODE) != node.metadata.name.as_deref() {
            return Err(format!("provisioning failed for PVC {:?}", key.name).into());
        }
        let Some(name) = volume_of_claim(&claim) else { return Ok(false) };
        // The volume may come after its claim.
        let Some(volume) = self.volumes.get(&ObjectKey::new("", name)) else { return Ok(false) };
        check_affinity(&volume, node)?;
        Ok(is_fully_bound(&claim))
    }
}

/// The object must be as it was read: another one may have chosen it too.
fn metadata(read: &ObjectMeta, name: &str, value: Option<&str>) -> Value {
    let mut metadata = json!({"uid": read.uid, "resourceVersion": read.resource_version});
    if let (Some(value), Some(fields)) = (value, metadata.as_object_mut()) {
        fields.insert("annotations".to_owned(), json!({name: value}));
    }
    metadata
}

fn check_affinity(volume: &PersistentVolume, node: &Node) -> Result<(), Reason> {
    let (name, labels) = (node.metadata.name.as_deref().unwrap_or_default(), node.metadata.labels.clone().unwrap_or_default());
    let required = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
    if required.is_none_or(|selector| selector_matches(selector, name, &labels)) {
        return Ok(());
    }
    let volume = volume.metadata.name.as_deref().unwrap_or_default();
    Err(format!("pv {volume:?} node affinity doesn't match node {name:?}: no matching NodeSelectorTerms").into())
}

fn revision(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

fn failed(message: String) -> Refusal {
    Refusal::Error(message.into())
}

#[cfg(test)]
mod tests;
