//! The volumes that a claim may be bound to. What does not depend on the node is judged once a cycle. Upstream's `FindMatchingVolume`.

use std::sync::Arc;

use api_model::selector::Selector;
use k8s_openapi::api::core::v1::{
    ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeSpec,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use sched_framework::{NodeInfo, Volumes, class_of_claim};

use super::provision::Provisioning;

/// A claim that waits for its first consumer.
pub(super) struct DelayedClaim {
    pub claim: Arc<PersistentVolumeClaim>,
    candidates: Candidates,
    /// Where a volume can be provisioned for the claim.
    pub provisioning: Provisioning,
}

enum Candidates {
    /// The volume was made for the claim: there is no other one.
    Reserved(Arc<PersistentVolume>),
    /// Any of these, the smallest first.
    Free(Vec<Arc<PersistentVolume>>),
}

impl DelayedClaim {
    /// Finds the volumes that the claim may get.
    pub fn new(claim: Arc<PersistentVolumeClaim>, class: &StorageClass, volumes: &Volumes) -> Self {
        let provisioning = Provisioning::new(&claim, class, volumes);
        let suitable = || volumes.of_class(class_of_claim(&claim)).filter(|volume| is_suitable(volume, &claim));
        let claim_ref = |volume: &&Arc<PersistentVolume>| volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_some());
        let candidates = match suitable().find(claim_ref) {
            Some(reserved) => Candidates::Reserved(Arc::clone(reserved)),
            None => {
                let selector = claim.spec.as_ref().and_then(|spec| spec.selector.as_ref());
                let selector = selector.map(|selector| Selector::typed(Some(selector)));
                let mut free: Vec<_> = suitable().filter(|volume| is_free(volume, &claim, selector.as_ref())).cloned().collect();
                free.sort_by_key(|volume| capacity(volume));
                Candidates::Free(free)
            }
        };
        Self { claim, candidates, provisioning }
    }

    /// The bytes that the claim requests.
    pub fn requested(&self) -> i64 {
        requested(&self.claim).unwrap_or_default()
    }

    /// The best volume that the node reaches and that is not taken.
    pub fn matching(&self, node: &NodeInfo, taken: impl Fn(&PersistentVolume) -> bool) -> Option<Arc<PersistentVolume>> {
        let fits = |volume: &&Arc<PersistentVolume>| super::reaches(volume, node) && !taken(volume);
        match &self.candidates {
            Candidates::Reserved(volume) => Some(volume).filter(fits).cloned(),
            Candidates::Free(volumes) => volumes.iter().find(fits).cloned(),
        }
    }
}

/// Whether a volume's reference is to the claim. A reference without a UID is to any claim of the name.
pub(super) fn is_for_claim(reference: &ObjectReference, claim: &PersistentVolumeClaim) -> bool {
    let has_uid = reference.uid.as_deref().is_some_and(|uid| !uid.is_empty());
    (&reference.name, &reference.namespace) == (&claim.metadata.name, &claim.metadata.namespace)
        && (!has_uid || reference.uid == claim.metadata.uid)
}

/// Whether the volume is big enough, of the right mode, and not another claim's.
fn is_suitable(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let (Some(spec), Some(of_claim)) = (&volume.spec, &claim.spec) else { return false };
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    spec.claim_ref.as_ref().is_none_or(|reference| is_for_claim(reference, claim))
        && capacity(volume) >= requested(claim).unwrap_or_default()
        && mode(&spec.volume_mode) == mode(&of_claim.volume_mode)
        && volume.metadata.deletion_timestamp.is_none()
}

/// Whether the volume is free, and has what the claim asks for.
fn is_free(volume: &PersistentVolume, claim: &PersistentVolumeClaim, selector: Option<&Selector>) -> bool {
    let (Some(spec), Some(of_claim)) = (&volume.spec, &claim.spec) else { return false };
    let no_labels = std::collections::BTreeMap::new();
    let labels = volume.metadata.labels.as_ref().unwrap_or(&no_labels);
    volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Available")
        && selector.is_none_or(|selector| selector.matches_map(labels))
        && attributes(&spec.volume_attributes_class_name) == attributes(&of_claim.volume_attributes_class_name)
        && has_access_modes(spec, of_claim)
}

/// The name of a VolumeAttributesClass; an empty one is none.
fn attributes(class: &Option<String>) -> &str {
    class.as_deref().unwrap_or_default()
}

fn has_access_modes(volume: &PersistentVolumeSpec, claim: &PersistentVolumeClaimSpec) -> bool {
    let modes = volume.access_modes.as_deref().unwrap_or_default();
    claim.access_modes.iter().flatten().all(|mode| modes.contains(mode))
}

fn capacity(volume: &PersistentVolume) -> i64 {
    let storage = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage"));
    storage.and_then(bytes).unwrap_or_default()
}

/// The bytes that a claim requests, if it says so.
pub(super) fn requested(claim: &PersistentVolumeClaim) -> Option<i64> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage").and_then(bytes)
}

/// The value of a quantity in whole bytes.
pub(super) fn bytes(quantity: &Quantity) -> Option<i64> {
    api_model::quantity::value(&quantity.0).ok()
}
