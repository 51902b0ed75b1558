//! The claims of a Pod, with upstream's reasons why they cannot be used.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{DeviceRequest, ResourceClaim, ResourceClaimConsumerReference};
use sched_framework::{ClaimSource, DraManager, PodInfo, allocation_of_claim};

use super::requests::{alternative_name, claim_name};

/// Why a claim cannot be used now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClaimError {
    #[error("pod {0:?}: ResourceClaim not created yet")]
    NotCreated(String),
    #[error("pod {pod:?}, spec.resourceClaim {claim:?}: none of the supported fields are set")]
    Unsupported { pod: String, claim: String },
    #[error("could not find ResourceClaim {0:?}")]
    Missing(String),
    #[error("resourceclaim {0:?} is being deleted")]
    Deleting(String),
    #[error("ResourceClaim {claim} was not created for pod {pod} (pod is not owner)")]
    NotOwned { claim: String, pod: String },
    #[error("resource claim {0} is in the process of being allocated")]
    Pending(String),
    #[error("request {request}: device class {class} does not exist")]
    NoClass { request: String, class: String },
    #[error("resource claim {claim}, request {request}: unknown request type")]
    UnknownRequest { claim: String, request: String },
}

/// The claims of the Pod, each once: a Pod may name a claim several times.
pub(crate) fn of_pod(pod: &PodInfo, dra: &DraManager) -> Result<Vec<Arc<ResourceClaim>>, ClaimError> {
    let (mut claims, mut uids) = (Vec::new(), HashSet::new());
    for of_pod in &pod.resource_claims {
        let (name, is_generated) = match &of_pod.source {
            ClaimSource::Named(name) => (name, false),
            ClaimSource::Generated(name) => (name, true),
            ClaimSource::NotNeeded => continue,
            ClaimSource::NotCreated => return Err(ClaimError::NotCreated(pod.key())),
            ClaimSource::Unsupported => return Err(ClaimError::Unsupported { pod: pod.key(), claim: of_pod.name.clone() }),
        };
        let claim = dra.claim(&pod.namespace, name).ok_or_else(|| ClaimError::Missing(format!("{}/{name}", pod.namespace)))?;
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(ClaimError::Deleting(name.clone()));
        }
        let mut owners = claim.metadata.owner_references.iter().flatten();
        if is_generated && !owners.any(|owner| owner.controller == Some(true) && owner.uid == pod.uid) {
            return Err(ClaimError::NotOwned { claim: claim_name(claim), pod: pod.key() });
        }
        if uids.insert(claim.metadata.uid.as_deref().unwrap_or_default()) {
            claims.push(Arc::clone(claim));
        }
    }
    Ok(claims)
}

/// The key of a claim for which the Pod waits before it is tried: the claim was made for it, and the scheduler does not have it yet.
pub(crate) fn awaited(pod: &PodInfo, dra: &DraManager) -> Option<String> {
    pod.resource_claims.iter().find_map(|claim| match &claim.source {
        // The Pod's status will have its name.
        ClaimSource::NotCreated => Some(String::new()),
        ClaimSource::Generated(name) if dra.claim(&pod.namespace, name).is_none() => Some(format!("{}/{name}", pod.namespace)),
        ClaimSource::Generated(_) | ClaimSource::Named(_) | ClaimSource::NotNeeded | ClaimSource::Unsupported => None,
    })
}

/// Whether the claims that are not allocated can be.
pub(super) fn check(claims: &[Arc<ResourceClaim>], dra: &DraManager) -> Result<(), ClaimError> {
    for claim in claims.iter().filter(|claim| allocation_of_claim(claim).is_none()) {
        if dra.claim_has_pending_allocation(claim.metadata.uid.as_deref().unwrap_or_default()) {
            return Err(ClaimError::Pending(claim_name(claim)));
        }
        let requests = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref()?.requests.as_ref());
        for request in requests.into_iter().flatten() {
            check_classes(claim, request, dra)?;
        }
    }
    Ok(())
}

fn check_classes(claim: &ResourceClaim, request: &DeviceRequest, dra: &DraManager) -> Result<(), ClaimError> {
    let classes: Vec<(String, &str)> = match (&request.exactly, &request.first_available) {
        (Some(exactly), _) => vec![(request.name.clone(), &exactly.device_class_name)],
        (None, Some(subs)) if !subs.is_empty() => {
            subs.iter().map(|sub| (alternative_name(request, sub), sub.device_class_name.as_str())).collect()
        }
        _ => return Err(ClaimError::UnknownRequest { claim: claim_name(claim), request: request.name.clone() }),
    };
    match classes.into_iter().find(|(_, class)| dra.class(class).is_none()) {
        Some((request, class)) => Err(ClaimError::NoClass { request, class: class.to_owned() }),
        None => Ok(()),
    }
}

/// The consumers for which the claim is reserved.
pub(super) fn reserved_for(claim: &ResourceClaim) -> &[ResourceClaimConsumerReference] {
    claim.status.as_ref().and_then(|status| status.reserved_for.as_deref()).unwrap_or_default()
}

/// Whether the claim is reserved for the Pod with this UID.
pub(super) fn is_reserved_for(claim: &ResourceClaim, uid: &str) -> bool {
    reserved_for(claim).iter().any(|consumer| consumer.uid == uid)
}
