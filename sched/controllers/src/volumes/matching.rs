//! Whether a volume satisfies a claim. Pure; the rules are upstream's.

use api_model::quantity;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::class;
use crate::meta;

/// The storage that the claim requests, in billionths of a byte.
pub fn requested_nano(claim: &PersistentVolumeClaim) -> i128 {
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    requests.and_then(|requests| quantity::nano(&requests.get("storage")?.0).ok()).unwrap_or(0)
}

/// The storage that the volume has, in billionths of a byte.
pub fn capacity_nano(volume: &PersistentVolume) -> i128 {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage"));
    capacity.and_then(|capacity| quantity::nano(&capacity.0).ok()).unwrap_or(0)
}

/// The access modes of a list, sorted.
pub fn sorted(modes: Option<&Vec<String>>) -> Vec<String> {
    let mut modes = modes.cloned().unwrap_or_default();
    modes.sort();
    modes.dedup();
    modes
}

/// The access modes that the claim requests.
pub fn requested_modes(claim: &PersistentVolumeClaim) -> Vec<String> {
    sorted(claim.spec.as_ref().and_then(|spec| spec.access_modes.as_ref()))
}

/// The access modes of the volume.
pub fn volume_modes(volume: &PersistentVolume) -> Vec<String> {
    sorted(volume.spec.as_ref().and_then(|spec| spec.access_modes.as_ref()))
}

/// Whether the volume is reserved for the claim, by its name and, once it is set, its UID.
pub fn is_reserved_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(reference) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else { return false };
    let uid = reference.uid.as_deref().unwrap_or_default();
    reference.name == claim.metadata.name
        && reference.namespace == claim.metadata.namespace
        && (uid.is_empty() || uid == meta::uid(&claim.metadata))
}

/// Whether one is for files and the other one a device.
pub fn differ_in_mode(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let of_claim = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    let of_volume = volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    of_claim.unwrap_or("Filesystem") != of_volume.unwrap_or("Filesystem")
}

/// Whether the volume may be bound to a claim that it is reserved for and that does not name it.
pub fn fits_reserved(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    is_reserved_for(volume, claim)
        && !meta::is_deleting(&volume.metadata)
        && !differ_in_mode(volume, claim)
        && contains(&volume_modes(volume), &requested_modes(claim))
        && capacity_nano(volume) >= requested_nano(claim)
}

/// Whether a volume without a claim satisfies the claim, selector included.
pub fn fits_free(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let selector = claim.spec.as_ref().and_then(|spec| spec.selector.as_ref()).map(meta::selector);
    volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_none())
        && selector.is_none_or(|selector| meta::matches(&selector, volume.metadata.labels.as_ref()))
        && mismatch(volume, claim).is_none()
}

/// Why a volume that a claim names does not satisfy it; upstream's words.
pub fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<String> {
    if meta::is_deleting(&volume.metadata) {
        return Some(format!("the volume is marked for deletion {:?}", meta::name(&volume.metadata)));
    }
    let attributes = |name: Option<&String>| name.cloned().unwrap_or_default();
    let of_claim = attributes(claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_ref()));
    let of_volume = attributes(volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_ref()));
    let why = if capacity_nano(volume) < requested_nano(claim) {
        "requested PV is too small"
    } else if class::of_volume(volume) != class::of_claim(claim) {
        "storageClassName does not match"
    } else if of_claim != of_volume {
        "volumeAttributesClassName does not match"
    } else if differ_in_mode(volume, claim) {
        "incompatible volumeMode"
    } else if !contains(&volume_modes(volume), &requested_modes(claim)) {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(why.to_owned())
}

/// Whether the first list has all elements of the second one.
pub fn contains(all: &[String], some: &[String]) -> bool {
    some.iter().all(|one| all.contains(one))
}
