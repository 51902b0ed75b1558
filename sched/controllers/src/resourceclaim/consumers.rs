//! Which Pods use a claim or a template, as the Pods say. Pods without claims are not in it.

use std::collections::{BTreeSet, HashMap};

use api_client::informer::ObjectKey;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

use super::generate::Lookup;
use super::{claims_of, is_done};
use crate::meta;

/// The Pods by what they use.
#[derive(Default)]
pub struct Consumers(Mutex<Index>);

#[derive(Default)]
struct Index {
    by_claim: HashMap<ObjectKey, BTreeSet<ObjectKey>>,
    by_template: HashMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// The claims and the templates of each Pod.
    of_pod: HashMap<ObjectKey, (Vec<ObjectKey>, Vec<ObjectKey>)>,
}

impl Consumers {
    /// Stores the new state of a Pod, or removes one that is gone or has ended.
    pub fn set(&self, key: &ObjectKey, pod: Option<&Pod>) {
        let mut index = self.0.lock();
        let (claims, templates) = index.of_pod.remove(key).unwrap_or_default();
        claims.iter().for_each(|claim| remove(&mut index.by_claim, claim, key));
        templates.iter().for_each(|template| remove(&mut index.by_template, template, key));
        let Some(pod) = pod.filter(|pod| !is_done(pod) && !claims_of(pod).is_empty()) else { return };
        let namespaced = |name: &str| ObjectKey::new(meta::namespace(&pod.metadata), name);
        let claims: Vec<_> = claims_of(pod).iter().filter_map(|claim| Lookup::new(pod, claim).name()).map(namespaced).collect();
        let templates: Vec<_> =
            claims_of(pod).iter().filter_map(|claim| claim.resource_claim_template_name.as_deref()).map(namespaced).collect();
        for claim in &claims {
            index.by_claim.entry(claim.clone()).or_default().insert(key.clone());
        }
        for template in &templates {
            index.by_template.entry(template.clone()).or_default().insert(key.clone());
        }
        index.of_pod.insert(key.clone(), (claims, templates));
    }

    /// The Pods that use the claim.
    pub fn of_claim(&self, claim: &ObjectKey) -> Vec<ObjectKey> {
        self.0.lock().by_claim.get(claim).into_iter().flatten().cloned().collect()
    }

    /// The Pods that name the template.
    pub fn of_template(&self, template: &ObjectKey) -> Vec<ObjectKey> {
        self.0.lock().by_template.get(template).into_iter().flatten().cloned().collect()
    }
}

fn remove(index: &mut HashMap<ObjectKey, BTreeSet<ObjectKey>>, of: &ObjectKey, pod: &ObjectKey) {
    if let Some(pods) = index.get_mut(of) {
        pods.remove(pod);
        if pods.is_empty() {
            index.remove(of);
        }
    }
}
