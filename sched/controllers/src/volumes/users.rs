//! Which Pods name a claim, in a volume or by an ephemeral volume. Fed by the informer of Pods.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use api_client::informer::{Change, Informer, ObjectKey};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use parking_lot::Mutex;

use crate::context::ControllerContext;
use crate::meta;

/// The names of Pods by claim. Pod and claim share their namespace.
#[derive(Default)]
pub struct ClaimUsers {
    pods: Mutex<HashMap<ObjectKey, BTreeSet<String>>>,
}

/// The volumes of a Pod.
pub fn volumes(pod: &Pod) -> &[Volume] {
    pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default()
}

/// The name of the claim of an ephemeral volume.
pub fn ephemeral_claim_name(pod: &Pod, volume: &Volume) -> String {
    format!("{}-{}", meta::name(&pod.metadata), volume.name)
}

/// Whether the Pod owns the claim of its ephemeral volume.
pub fn owns(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    claim.metadata.namespace == pod.metadata.namespace && meta::controller_uid(&claim.metadata) == meta::uid(&pod.metadata)
}

/// The name of the claim that a volume needs, if it needs one.
pub fn claim_name(pod: &Pod, volume: &Volume) -> Option<String> {
    match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(ephemeral_claim_name(pod, volume)),
        (None, None) => None,
    }
}

/// The claims that a Pod names.
pub fn claims(pod: &Pod) -> Vec<ObjectKey> {
    let names = volumes(pod).iter().filter_map(|volume| claim_name(pod, volume));
    names.map(|name| ObjectKey::new(meta::namespace(&pod.metadata), name)).collect()
}

impl ClaimUsers {
    /// An index that follows the Pods for as long as the controllers run. Handlers that are registered later find it up to date.
    pub fn follow(context: &mut ControllerContext, pods: &Informer<Pod>) -> Arc<Self> {
        let users = Arc::new(Self::default());
        let followed = Arc::clone(&users);
        context.on_change(pods, move |change| followed.observe(change));
        users
    }

    /// Follows a change of a Pod. The volumes of a Pod never change.
    pub fn observe(&self, change: &Change<Pod>) {
        let mut users = self.pods.lock();
        match (&change.old, &change.new) {
            (None, Some(pod)) => {
                for claim in claims(pod) {
                    users.entry(claim).or_default().insert(meta::name(&pod.metadata).to_owned());
                }
            }
            (Some(pod), None) => {
                for claim in claims(pod) {
                    if let Some(pods) = users.get_mut(&claim) {
                        pods.remove(meta::name(&pod.metadata));
                        if pods.is_empty() {
                            users.remove(&claim);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// The Pods that name the claim, by name.
    pub fn of(&self, claim: &ObjectKey, pods: &Informer<Pod>) -> Vec<Arc<Pod>> {
        let names = self.pods.lock().get(claim).cloned().unwrap_or_default();
        names.into_iter().filter_map(|name| pods.get(&ObjectKey::new(claim.namespace.clone(), name))).collect()
    }
}
