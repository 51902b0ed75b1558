//! The devices of a Pod's claims. The node has no DRA drivers yet, so it cannot prepare a device: a Pod with devices waits, and none of its
//! containers runs without them. The words are upstream's.

use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::ResourceClaim;
use thiserror::Error;

use crate::error::chain;
use crate::layout::PodName;
use crate::objects::Objects;
use crate::reason::Reason;

/// Why the devices of a Pod are not there.
#[derive(Debug, Error)]
enum PrepareError {
    #[error("pod {0:?}: ResourceClaim not created yet")]
    NotCreated(String),
    #[error("failed to fetch ResourceClaim {claim} referenced by pod {pod}: {}", chain(.error))]
    Fetch { claim: String, pod: String, error: kube::Error },
    #[error("failed to fetch ResourceClaim {claim} referenced by pod {pod}: resourceclaims.resource.k8s.io {claim:?} not found")]
    NotFound { claim: String, pod: String },
    #[error("pod {pod}({pod_uid}) is not allowed to use resource claim {claim}({claim_uid})")]
    NotReserved { pod: String, pod_uid: String, claim: String, claim_uid: String },
    #[error("DRA driver {0} is not registered")]
    NoDriver(String),
}

/// Prepares the devices of the Pod's claims.
///
/// # Errors
/// As long as a claim is not reserved for the Pod, or has a device.
pub(crate) async fn prepare(pod: &Pod, objects: &Objects) -> Result<(), Reason> {
    let failed =
        |error: PrepareError| Reason::new("FailedPrepareDynamicResources", format!("Failed to prepare dynamic resources: {error}"));
    let names = PodName::of(pod);
    let claims = pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_deref()).unwrap_or_default();
    for claim in claims {
        if let Some(name) = claim_name(pod, claim, &names).map_err(failed)? {
            prepare_claim(&names, name, objects).await.map_err(failed)?;
        }
    }
    // The scheduler created it for extended resources.
    let special = pod.status.as_ref().and_then(|status| status.extended_resource_claim_status.as_ref());
    if let Some(special) = special {
        prepare_claim(&names, &special.resource_claim_name, objects).await.map_err(failed)?;
    }
    Ok(())
}

/// The name of the ResourceClaim for a claim of the Pod; `None` when the template says that none is needed.
fn claim_name<'a>(pod: &'a Pod, claim: &'a PodResourceClaim, names: &PodName) -> Result<Option<&'a str>, PrepareError> {
    let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref());
    match (&claim.resource_claim_name, statuses.into_iter().flatten().find(|status| status.name == claim.name)) {
        (Some(name), _) => Ok(Some(name)),
        (None, Some(status)) => Ok(status.resource_claim_name.as_deref()),
        (None, None) => Err(PrepareError::NotCreated(format!("{}/{}", names.namespace, names.name))),
    }
}

async fn prepare_claim(names: &PodName, name: &str, objects: &Objects) -> Result<(), PrepareError> {
    let (claim, pod) = (|| name.to_owned(), || names.name.clone());
    let present = objects.resource_claim(&names.namespace, name).await;
    let present = present.map_err(|error| PrepareError::Fetch { claim: claim(), pod: pod(), error })?;
    let present = present.ok_or_else(|| PrepareError::NotFound { claim: claim(), pod: pod() })?;
    check(&present, name, names)
}

/// Whether the Pod may use the claim, and the node can prepare its devices.
fn check(claim: &ResourceClaim, name: &str, pod: &PodName) -> Result<(), PrepareError> {
    let status = claim.status.as_ref();
    let mut consumers = status.into_iter().flat_map(|status| status.reserved_for.iter().flatten());
    if !consumers.any(|consumer| consumer.uid == pod.uid) {
        return Err(PrepareError::NotReserved {
            pod: pod.name.clone(),
            pod_uid: pod.uid.clone(),
            claim: name.to_owned(),
            claim_uid: claim.metadata.uid.clone().unwrap_or_default(),
        });
    }
    let devices = status.and_then(|status| status.allocation.as_ref()?.devices.as_ref()?.results.as_ref());
    match devices.into_iter().flatten().next() {
        Some(device) => Err(PrepareError::NoDriver(device.driver.clone())),
        None => Ok(()),
    }
}
