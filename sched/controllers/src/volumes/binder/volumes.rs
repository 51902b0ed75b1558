//! What a volume needs. Pure: the volume and its claim go in, one action comes out.

use api_model::storage::PROVISIONED_BY;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::super::matching;
use super::super::object::{claim_uid, phase, reclaim_policy};
use crate::meta;
use crate::note::{Note, warning};

/// What is to be done for a volume.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// Set the phase, unless it is that already.
    Phase(&'static str),
    /// Set the phase `Failed` with the event's message; the event is recorded when the phase changes.
    Fail(Note),
    /// Take the binding back.
    Unbind,
    /// The claim completes the binding.
    LookAtClaim,
    /// Volume and claim never fit; one event for each.
    Mismatch {
        /// The event of the volume.
        of_volume: Note,
        /// The event of the claim.
        of_claim: Note,
    },
}

/// Whether the volume lost its claim before.
pub fn is_released(volume: &PersistentVolume) -> bool {
    matches!(phase(volume), "Released" | "Failed")
}

/// The action for a volume. `claim` is the claim of its reference, by name and UID.
pub fn plan(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> Action {
    if claim_uid(volume).is_none() {
        return Action::Phase("Available");
    }
    let Some(claim) = claim else { return reclaim(volume) };
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
    if named.is_empty() {
        return if matching::differ_in_mode(volume, claim) { mismatch(volume, claim) } else { Action::LookAtClaim };
    }
    if named == meta::name(&volume.metadata) {
        return Action::Phase("Bound");
    }
    // The claim has another volume. One that was made for this claim is of no use.
    let was_made_for_it = meta::annotation(&volume.metadata, PROVISIONED_BY).is_some();
    if was_made_for_it && reclaim_policy(volume) == "Delete" { reclaim(volume) } else { Action::Unbind }
}

/// The claim is gone.
fn reclaim(volume: &PersistentVolume) -> Action {
    let released = if is_released(volume) { Action::Nothing } else { Action::Phase("Released") };
    match reclaim_policy(volume) {
        "Retain" => released,
        "Delete" => match undeletable(volume) {
            None => released,
            Some(why) => Action::Fail(warning("VolumeFailedDelete", why)),
        },
        "Recycle" => Action::Fail(warning("VolumeFailedRecycle", "No recycler plugin found for the volume!")),
        _ => Action::Fail(warning("VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy")),
    }
}

/// Why nothing deletes the volume. A provisioner deletes what it made.
fn undeletable(volume: &PersistentVolume) -> Option<String> {
    let spec = volume.spec.as_ref()?;
    let provisioner = meta::annotation(&volume.metadata, PROVISIONED_BY).unwrap_or_default();
    if spec.csi.is_some() || !(provisioner.is_empty() || provisioner.starts_with("kubernetes.io/")) {
        return None;
    }
    if let Some(host) = &spec.host_path {
        return Some(format!("host_path deleter only supports /tmp/.+ but received provided {}", host.path))
            .filter(|_| !host.path.starts_with("/tmp/"))
            .or_else(|| Some(no_deleter(volume)));
    }
    Some(no_deleter(volume))
}

fn no_deleter(volume: &PersistentVolume) -> String {
    let name = meta::name(&volume.metadata);
    format!("error getting deleter volume plugin for volume {name:?}: no deletable volume plugin matched")
}

fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Action {
    let (volume, claim) = (meta::name(&volume.metadata), meta::name(&claim.metadata));
    let to_claim = format!("Cannot bind PersistentVolume to requested PersistentVolumeClaim {claim:?} due to incompatible volumeMode.");
    let to_volume = format!("Cannot bind PersistentVolume {volume:?} to requested PersistentVolumeClaim due to incompatible volumeMode.");
    Action::Mismatch { of_volume: warning("VolumeMismatch", to_claim), of_claim: warning("VolumeMismatch", to_volume) }
}
