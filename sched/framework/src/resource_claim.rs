//! The claims for devices of a Pod, and the ResourceClaim of each.

use k8s_openapi::api::core::v1::Pod;

/// A claim for devices in a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodResourceClaim {
    /// The name within the Pod.
    pub name: String,
    /// Which ResourceClaim it is.
    pub source: ClaimSource,
}

/// The ResourceClaim of a claim in a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimSource {
    /// The ResourceClaim of that name, which other Pods may use too.
    Named(String),
    /// The ResourceClaim of that name, which was made for the Pod by a template.
    Generated(String),
    /// The template said that no ResourceClaim is needed.
    NotNeeded,
    /// The ResourceClaim is still to be made by a template.
    NotCreated,
    /// The Pod names neither a ResourceClaim nor a template.
    Unsupported,
}

impl PodResourceClaim {
    /// The claims of the Pod.
    pub fn of_pod(pod: &Pod) -> Vec<Self> {
        let spec = pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_ref());
        let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref());
        let source = |claim: &k8s_openapi::api::core::v1::PodResourceClaim| {
            if let Some(name) = &claim.resource_claim_name {
                return ClaimSource::Named(name.clone());
            }
            if claim.resource_claim_template_name.is_none() {
                return ClaimSource::Unsupported;
            }
            match statuses.into_iter().flatten().find(|status| status.name == claim.name) {
                Some(status) => status.resource_claim_name.clone().map_or(ClaimSource::NotNeeded, ClaimSource::Generated),
                None => ClaimSource::NotCreated,
            }
        };
        spec.into_iter().flatten().map(|claim| Self { name: claim.name.clone(), source: source(claim) }).collect()
    }

    /// The name of the ResourceClaim, once there is one.
    pub fn claim_name(&self) -> Option<&str> {
        match &self.source {
            ClaimSource::Named(name) | ClaimSource::Generated(name) => Some(name),
            ClaimSource::NotNeeded | ClaimSource::NotCreated | ClaimSource::Unsupported => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{self, json};

    use super::*;

    #[test]
    fn the_status_of_a_pod_names_claims_made_by_templates() {
        let pod: Pod = serde_json::from_value(json!({
            "spec": {"containers": [], "resourceClaims": [
                {"name": "a", "resourceClaimName": "shared"},
                {"name": "b", "resourceClaimTemplateName": "t"},
                {"name": "c", "resourceClaimTemplateName": "t"},
                {"name": "d", "resourceClaimTemplateName": "t"},
                {"name": "e"},
            ]},
            "status": {"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p-b-x"}, {"name": "c"}]},
        }))
        .expect("a pod");
        let sources: Vec<_> = PodResourceClaim::of_pod(&pod).into_iter().map(|claim| claim.source).collect();
        assert_eq!(
            sources,
            [
                ClaimSource::Named("shared".to_owned()),
                ClaimSource::Generated("p-b-x".to_owned()),
                ClaimSource::NotNeeded,
                ClaimSource::NotCreated,
                ClaimSource::Unsupported,
            ]
        );
    }
}
