//! What the controllers of this folder read from a PersistentVolume.

use api_client::informer::ObjectKey;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume};

/// `status.phase`; empty before it is set.
pub fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// What becomes of the volume after its claim.
pub fn reclaim_policy(volume: &PersistentVolume) -> &str {
    volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()).unwrap_or("Retain")
}

/// The reference to the volume's claim.
pub fn claim_reference(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

/// The claim that the volume names.
pub fn claim_key(volume: &PersistentVolume) -> Option<ObjectKey> {
    let reference = claim_reference(volume)?;
    Some(ObjectKey::new(reference.namespace.clone()?, reference.name.clone()?))
}

/// The UID of the claim that the volume is bound to; `None` before it is bound.
pub fn claim_uid(volume: &PersistentVolume) -> Option<&str> {
    claim_reference(volume)?.uid.as_deref().filter(|uid| !uid.is_empty())
}
