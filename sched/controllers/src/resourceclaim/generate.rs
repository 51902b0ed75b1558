//! The claim that a template makes for a Pod.

use k8s_openapi::api::core::v1::{Pod, PodResourceClaim, PodResourceClaimStatus};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::meta;

/// The annotation of a claim that was made by a template: the name of the claim in the Pod.
const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
/// A name has 63 characters, of which a hyphen and five random ones are added.
const BASE_LEN_MAX: usize = 57;

/// Which ResourceClaim a claim of a Pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// The one of that name.
    Named(&'a str),
    /// None is needed.
    NotNeeded,
    /// It is still to be made.
    NotCreated,
}

impl<'a> Lookup<'a> {
    pub fn new(pod: &'a Pod, claim: &'a PodResourceClaim) -> Self {
        if let Some(name) = &claim.resource_claim_name {
            return Self::Named(name);
        }
        let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref());
        match statuses.into_iter().flatten().find(|status| status.name == claim.name) {
            Some(PodResourceClaimStatus { resource_claim_name: Some(name), .. }) => Self::Named(name),
            Some(_) => Self::NotNeeded,
            None => Self::NotCreated,
        }
    }

    pub fn name(self) -> Option<&'a str> {
        match self {
            Self::Named(name) => Some(name),
            Self::NotNeeded | Self::NotCreated => None,
        }
    }
}

/// Whether the claim was made for the Pod.
pub fn is_for_pod(claim: &ResourceClaim, pod: &Pod) -> bool {
    meta::controller_uid(&claim.metadata) == meta::uid(&pod.metadata)
}

/// Whether the claim was made for the claim of that name in its Pod.
pub fn is_of(claim: &ResourceClaim, pod_claim: &str) -> bool {
    meta::annotation(&claim.metadata, POD_CLAIM_NAME) == Some(pod_claim)
}

/// The names of claims that the Pod's status has.
pub fn statuses(pod: &Pod) -> Vec<PodResourceClaimStatus> {
    pod.status.as_ref().and_then(|status| status.resource_claim_statuses.clone()).unwrap_or_default()
}

/// Stores the name of a claim. Returns whether it is new.
pub fn set_status(statuses: &mut Vec<PodResourceClaimStatus>, claim: &str, name: String) -> bool {
    match statuses.iter_mut().find(|status| status.name == claim) {
        Some(status) if status.resource_claim_name.as_ref() == Some(&name) => return false,
        Some(status) => status.resource_claim_name = Some(name),
        None => statuses.push(PodResourceClaimStatus { name: claim.to_owned(), resource_claim_name: Some(name) }),
    }
    true
}

/// The claim for the Pod. The server gives it a name.
pub fn claim(pod: &Pod, claim: &PodResourceClaim, template: &ResourceClaimTemplate) -> ResourceClaim {
    let from = template.spec.as_ref().and_then(|spec| spec.metadata.clone()).unwrap_or_default();
    let mut annotations = from.annotations.unwrap_or_default();
    annotations.insert(POD_CLAIM_NAME.to_owned(), claim.name.clone());
    ResourceClaim {
        metadata: ObjectMeta {
            namespace: pod.metadata.namespace.clone(),
            generate_name: Some(base_name(meta::name(&pod.metadata), &claim.name)),
            owner_references: Some(vec![meta::controller_reference(pod)]),
            annotations: Some(annotations),
            labels: from.labels,
            ..ObjectMeta::default()
        },
        spec: template.spec.as_ref().and_then(|spec| spec.spec.clone()),
        status: None,
    }
}

/// `POD-CLAIM-`, or both shortened in proportion where that is too long.
fn base_name(pod: &str, claim: &str) -> String {
    let full = format!("{pod}-{claim}-");
    if full.len() <= BASE_LEN_MAX {
        return full;
    }
    let shortened = |part: &str| part.get(..part.len() * BASE_LEN_MAX / full.len()).unwrap_or_default().to_owned();
    format!("{}-{}", shortened(pod), shortened(claim))
}
