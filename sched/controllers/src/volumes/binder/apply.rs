//! The writes of the binder.

use api_client::events::reference;
use api_client::informer::ObjectKey;
use api_model::storage::{BIND_COMPLETED, BOUND_BY_CONTROLLER, STORAGE_PROVISIONERS};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

use super::super::{matching, object};
use super::{Binder, claims, volumes};
use crate::failure::Failure;
use crate::note::{Note, normal, record};
use crate::{meta, writes};

impl Binder {
    /// Performs the action for a claim.
    pub(super) async fn apply_claim(&self, claim: &PersistentVolumeClaim, action: claims::Action) -> Result<(), Failure> {
        match action {
            claims::Action::Bind(volume) => self.bind(&volume, claim).await,
            claims::Action::Wait(note) => {
                record(&self.recorder, &reference(claim), note.into_iter().collect());
                self.set_claim_phase(claim, "Pending", None).await.map(drop)
            }
            claims::Action::Lose(note) => {
                // Once lost, always lost, as upstream: the event would come again otherwise.
                if claim_phase(claim) != "Lost" && self.set_claim_phase(claim, "Lost", None).await? {
                    self.note_claim(claim, note);
                }
                Ok(())
            }
            claims::Action::AssignClass(name) => {
                tracing::info!(claim = %ObjectKey::from(&claim.metadata), class = name, "claim gets the default class");
                writes::patch(&self.client, claim, json!({"spec": {"storageClassName": name}})).await.map(drop)
            }
            claims::Action::Provision(provisioner) => self.provision(claim, &provisioner).await,
        }
    }

    /// Performs the action for a volume.
    pub(super) async fn apply_volume(
        &self,
        volume: &PersistentVolume,
        claim: Option<&PersistentVolumeClaim>,
        action: volumes::Action,
    ) -> Result<(), Failure> {
        match action {
            volumes::Action::Nothing => {}
            volumes::Action::Phase(phase) => drop(self.set_volume_phase(volume.clone(), phase, "").await?),
            volumes::Action::Fail(note) => {
                if object::phase(volume) != "Failed" {
                    self.set_volume_phase(volume.clone(), "Failed", &note.message).await?;
                    record(&self.recorder, &reference(volume), vec![note]);
                }
            }
            volumes::Action::Unbind => self.unbind(volume).await?,
            volumes::Action::LookAtClaim => claim.into_iter().for_each(|claim| self.look_at(claim)),
            volumes::Action::Mismatch { of_volume, of_claim } => {
                record(&self.recorder, &reference(volume), vec![of_volume]);
                claim.into_iter().for_each(|claim| self.note_claim(claim, of_claim.clone()));
            }
        }
        Ok(())
    }

    fn note_claim(&self, claim: &PersistentVolumeClaim, note: Note) {
        record(&self.recorder, &reference(claim), vec![note]);
    }

    /// The four writes of a binding; those that were done before are left out.
    async fn bind(&self, volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<(), Failure> {
        let was_chosen = !matching::is_reserved_for(volume, claim);
        let mut volume = volume.clone();
        if let Some(patch) = volume_patch(&volume, claim) {
            volume = writes::patch(&self.client, &volume, patch).await?;
        }
        let volume = self.set_volume_phase(volume, "Bound", "").await?;
        let mut claim = claim.clone();
        if let Some(patch) = claim_patch(&claim, &volume) {
            claim = writes::patch(&self.client, &claim, patch).await?;
        }
        if self.set_claim_phase(&claim, "Bound", Some(&volume)).await? {
            tracing::info!(claim = %ObjectKey::from(&claim.metadata), volume = meta::name(&volume.metadata), "claim bound");
        }
        if was_chosen {
            // The next pass over this claim or for another one must not choose from older caches.
            writes::delivered(&self.volumes, &volume).await?;
            writes::delivered(&self.claims, &claim).await?;
        }
        Ok(())
    }

    /// Removes a reference that the controller wrote; of one that a user wrote, only the UID.
    async fn unbind(&self, volume: &PersistentVolume) -> Result<(), Failure> {
        let patch = match meta::annotation(&volume.metadata, BOUND_BY_CONTROLLER) {
            Some(_) => json!({"metadata": {"annotations": {BOUND_BY_CONTROLLER: null}}, "spec": {"claimRef": null}}),
            None => json!({"spec": {"claimRef": {"uid": null}}}),
        };
        let volume = writes::patch(&self.client, volume, patch).await?;
        self.set_volume_phase(volume, "Available", "").await.map(drop)
    }

    /// Writes which provisioner is to make a volume; it waits for that.
    async fn provision(&self, claim: &PersistentVolumeClaim, provisioner: &str) -> Result<(), Failure> {
        if STORAGE_PROVISIONERS.iter().any(|key| meta::annotation(&claim.metadata, key) != Some(provisioner)) {
            let annotations: Value = STORAGE_PROVISIONERS.iter().map(|key| ((*key).to_owned(), json!(provisioner))).collect();
            writes::patch(&self.client, claim, json!({"metadata": {"annotations": annotations}})).await?;
        }
        let message = format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system \
             administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
        );
        self.note_claim(claim, normal("ExternalProvisioning", message));
        Ok(())
    }

    async fn set_volume_phase(&self, volume: PersistentVolume, phase: &str, message: &str) -> Result<PersistentVolume, Failure> {
        if object::phase(&volume) == phase {
            return Ok(volume);
        }
        let message = Some(message).filter(|message| !message.is_empty());
        writes::patch_status(&self.client, &volume, json!({"phase": phase, "message": message, "reason": null})).await
    }

    /// Sets the phase of a claim, and with a volume its access modes and, as it becomes bound, its capacity. Returns whether
    /// something changed.
    async fn set_claim_phase(
        &self,
        claim: &PersistentVolumeClaim,
        phase: &str,
        volume: Option<&PersistentVolume>,
    ) -> Result<bool, Failure> {
        let old = claim.status.clone().unwrap_or_default();
        let mut new = old.clone();
        new.phase = Some(phase.to_owned());
        let spec = volume.and_then(|volume| volume.spec.as_ref());
        new.access_modes = spec.and_then(|spec| spec.access_modes.clone());
        match spec {
            None => new.capacity = None,
            // A later difference means that a resize is going on.
            Some(spec) if old.phase.as_deref() != Some(phase) => new.capacity = spec.capacity.clone(),
            Some(_) => {}
        }
        writes::set_status(&self.client, claim, Some(&old), &new).await
    }
}

fn claim_phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// What a volume lacks to be bound to the claim.
fn volume_patch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<Value> {
    let present = object::claim_reference(volume);
    let was_reserved = matching::is_reserved_for(volume, claim);
    if was_reserved && present.is_some_and(|present| present.uid == claim.metadata.uid) {
        return None;
    }
    let mut patch = json!({"spec": {"claimRef": reference(claim)}});
    if !was_reserved {
        meta::overlay(&mut patch, &json!({"metadata": {"annotations": {BOUND_BY_CONTROLLER: "yes"}}}));
    }
    Some(patch)
}

/// What a claim lacks to be bound to the volume.
fn claim_patch(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<Value> {
    let is_named = claim.spec.as_ref().is_some_and(|spec| spec.volume_name == volume.metadata.name);
    if is_named && meta::annotation(&claim.metadata, BIND_COMPLETED).is_some() {
        return None;
    }
    let mut patch = json!({"metadata": {"annotations": {BIND_COMPLETED: "yes"}}});
    if !is_named {
        let chosen = json!({"metadata": {"annotations": {BOUND_BY_CONTROLLER: "yes"}}, "spec": {"volumeName": volume.metadata.name}});
        meta::overlay(&mut patch, &chosen);
    }
    Some(patch)
}
