//! Which Pods use a claim or a template, as the Pods say. Pods without claims are not in it.

use api_client::informer::ObjectKey;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

use super::{claim_names, claims_of, is_done};
use crate::meta;
use crate::relation::Relation;

/// The Pods by what they use.
#[derive(Default)]
pub struct Consumers(Mutex<Index>);

#[derive(Default)]
struct Index {
    claims: Relation<ObjectKey, ObjectKey>,
    templates: Relation<ObjectKey, ObjectKey>,
}

impl Consumers {
    /// Stores the new state of a Pod, or removes one that is gone or has ended.
    pub fn set(&self, key: &ObjectKey, pod: Option<&Pod>) {
        let mut index = self.0.lock();
        let (mut claims, mut templates) = Default::default();
        if let Some(pod) = pod.filter(|pod| !is_done(pod)) {
            let namespaced = |name: &str| ObjectKey::new(meta::namespace(&pod.metadata), name);
            claims = claim_names(pod).map(namespaced).collect();
            templates = claims_of(pod).iter().filter_map(|claim| claim.resource_claim_template_name.as_deref()).map(namespaced).collect();
        }
        index.claims.set(key, claims);
        index.templates.set(key, templates);
    }

    /// The Pods that use the claim.
    pub fn of_claim(&self, claim: &ObjectKey) -> Vec<ObjectKey> {
        self.0.lock().claims.keys_of(claim)
    }

    /// The Pods that name the template.
    pub fn of_template(&self, template: &ObjectKey) -> Vec<ObjectKey> {
        self.0.lock().templates.keys_of(template)
    }
}
