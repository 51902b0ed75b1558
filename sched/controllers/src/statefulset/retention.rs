//! Who owns the claims of a StatefulSet's Pods, so that the garbage collector deletes them as
//! `persistentVolumeClaimRetentionPolicy` says: the set, a Pod that is scaled away, or nobody.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::identity;
use crate::meta;

/// Who must own a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Nobody,
    Set,
    Pod,
}

fn deletes(policy: Option<&String>) -> bool {
    policy.is_some_and(|policy| policy == "Delete")
}

/// Whether claims go when their Pod is scaled away.
fn when_scaled(set: &StatefulSet) -> bool {
    set.spec.persistent_volume_claim_retention_policy.as_ref().is_some_and(|policy| deletes(policy.when_scaled.as_ref()))
}

fn when_deleted(set: &StatefulSet) -> bool {
    set.spec.persistent_volume_claim_retention_policy.as_ref().is_some_and(|policy| deletes(policy.when_deleted.as_ref()))
}

fn owner(set: &StatefulSet, ordinal: i32) -> Owner {
    let scaled_away = !identity::in_range(set, ordinal);
    match (when_deleted(set), when_scaled(set)) {
        (_, true) if scaled_away => Owner::Pod,
        (true, _) => Owner::Set,
        (false, _) => Owner::Nobody,
    }
}

fn is_pod(reference: &OwnerReference) -> bool {
    reference.api_version == "v1" && reference.kind == "Pod"
}

/// The owners that a claim of the Pod must have; `None` when it has them, or when another controller manages the claim.
pub fn change(set: &StatefulSet, pod: &Pod, ordinal: i32, claim: &PersistentVolumeClaim) -> Option<Vec<OwnerReference>> {
    let (set_uid, pod_uid) = (meta::uid(&set.metadata), meta::uid(&pod.metadata));
    let present = claim.metadata.owner_references.as_deref().unwrap_or_default();
    let is_ours = |reference: &OwnerReference| reference.uid == set_uid || reference.uid == pod_uid;
    let retained = !when_scaled(set) && !when_deleted(set);
    if !retained && present.iter().any(|reference| reference.controller == Some(true) && !is_ours(reference)) {
        return None;
    }
    let wanted = match owner(set, ordinal) {
        Owner::Nobody => None,
        Owner::Set => Some(meta::controller_reference(set)),
        Owner::Pod => Some(meta::controller_reference(pod)),
    };
    let ours: Vec<_> = present.iter().filter(|reference| is_ours(reference)).collect();
    let fits = match (&wanted, ours.as_slice()) {
        (None, []) => true,
        (Some(wanted), [one]) => one.uid == wanted.uid && one.controller == Some(true),
        _ => false,
    };
    let others = present.iter().filter(|reference| !is_ours(reference)).cloned();
    (!fits).then(|| others.chain(wanted).collect())
}

/// Whether a claim belongs to an earlier Pod of the same name, with which it is deleted: no Pod may be created before that.
pub fn is_stale(set: &StatefulSet, pod: &str, claim: &PersistentVolumeClaim) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    when_scaled(set) && owners.any(|reference| is_pod(reference) && reference.name == pod)
}
