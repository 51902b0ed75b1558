//! Protection of claims that Pods use.

use std::collections::BTreeSet;
use std::sync::Arc;

use api_client::informer::{Change, Informer, ObjectKey};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use kube::api::ListParams;
use parking_lot::Mutex;

use super::super::users::{self, ClaimUsers};
use super::{Need, need};
use crate::context::ControllerContext;
use crate::failure::{During, Failure};
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, pods, writes};

const FINALIZER: &str = "kubernetes.io/pvc-protection";
/// Pods in one answer of a list.
const PAGE: u32 = 500;

/// The controller; its keys are claims.
pub struct ClaimProtection {
    client: kube::Client,
    claims: Informer<PersistentVolumeClaim>,
    pods: Informer<Pod>,
    users: Arc<ClaimUsers>,
    /// The last list of Pods.
    listed: Mutex<Listed>,
}

/// The used claims of one namespace at one revision.
#[derive(Default)]
struct Listed {
    namespace: String,
    revision: u64,
    /// Names, and for claims of ephemeral volumes the UID of the Pod that must own them; else empty.
    used: BTreeSet<(String, String)>,
}

impl Listed {
    /// Whether the list says that nothing uses a claim that was deleted at that revision.
    fn rules_out(&self, claim: &PersistentVolumeClaim, namespace: &str, deleted_at: u64) -> bool {
        self.namespace == namespace && self.revision >= deleted_at && !self.has(claim)
    }

    fn has(&self, claim: &PersistentVolumeClaim) -> bool {
        let with_owner = |owner: &str| (meta::name(&claim.metadata).to_owned(), owner.to_owned());
        self.used.contains(&with_owner("")) || self.used.contains(&with_owner(meta::controller_uid(&claim.metadata)))
    }
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("pvcprotection"));
    let pods = context.informer::<Pod>();
    let users = ClaimUsers::follow(context, &pods);
    let claims = context.feed(&queue, |change: &Change<PersistentVolumeClaim>| {
        let needing = change.new.iter().filter(|claim| need(&claim.metadata, FINALIZER) != Need::Nothing);
        needing.map(|claim| ObjectKey::from(&claim.metadata)).collect()
    });
    let cache = claims.clone();
    context.feed_from(&pods, &queue, move |change: &Change<Pod>| {
        // A Pod that went, ended or has no node may have been the last one in the way.
        if change.new.as_ref().is_some_and(|pod| !pods::is_terminal(pod) && !is_shut_down(pod) && pods::node_name(pod).is_some()) {
            return Vec::new();
        }
        let named = change.latest().into_iter().flat_map(|pod| users::claims(pod));
        named.filter(|key| cache.get(key).is_some_and(|claim| meta::is_deleting(&claim.metadata))).collect()
    });
    context.run(Arc::new(ClaimProtection { client: context.client(), claims, pods, users, listed: Mutex::default() }), queue);
}

/// Whether the node is done with the Pod, or it was deleted by force.
fn is_shut_down(pod: &Pod) -> bool {
    meta::is_deleting(&pod.metadata) && pod.metadata.deletion_grace_period_seconds == Some(0)
}

/// Whether the Pod uses the claim. A Pod without a node does not: a node starts no Pod whose claim is being deleted.
fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let name = claim.metadata.name.as_deref();
    pods::node_name(pod).is_some()
        && users::volumes(pod).iter().any(|volume| {
            let named = volume.persistent_volume_claim.as_ref().is_some_and(|source| Some(source.claim_name.as_str()) == name);
            let is_ephemeral = volume.ephemeral.is_some() && Some(users::ephemeral_claim_name(pod, volume).as_str()) == name;
            named || is_ephemeral && !is_shut_down(pod) && users::owns(pod, claim)
        })
}

impl Controller for ClaimProtection {
    const NAME: &'static str = "persistentvolumeclaim-protection-controller";
    const WORKERS: usize = 1;
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let Some(claim) = self.claims.get(key) else { return Ok(Next::OnChange) };
        match need(&claim.metadata, FINALIZER) {
            Need::Nothing => {}
            Need::Finalizer => writes::add_finalizer(&self.client, claim.as_ref(), FINALIZER).await?,
            Need::Check => {
                if self.users.of(key, &self.pods).iter().any(|pod| uses(pod, &claim)) || self.is_used_now(&claim).await? {
                    return Ok(Next::OnChange);
                }
                writes::remove_finalizer(&self.client, claim.as_ref(), FINALIZER).await?;
            }
        }
        Ok(Next::OnChange)
    }
}

impl ClaimProtection {
    /// Whether a Pod that the cache may not have yet uses the claim. A list of the namespace's Pods without a user answers for all
    /// claims whose deletion it is younger than: a Pod that comes later is not started. A user in it may be gone since.
    async fn is_used_now(&self, claim: &PersistentVolumeClaim) -> Result<bool, Failure> {
        let namespace = meta::namespace(&claim.metadata);
        let deleted_at = revision(claim.metadata.resource_version.as_deref());
        if self.listed.lock().rules_out(claim, namespace, deleted_at) {
            return Ok(false);
        }
        let listed = self.list(namespace).await?;
        let is_used = listed.has(claim);
        *self.listed.lock() = listed;
        Ok(is_used)
    }

    async fn list(&self, namespace: &str) -> Result<Listed, Failure> {
        let api = writes::api::<Pod>(&self.client, namespace);
        let mut listed = Listed { namespace: namespace.to_owned(), ..Listed::default() };
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = api.list(&params).await.during("listing the Pods of", namespace)?;
            listed.revision = revision(page.metadata.resource_version.as_deref());
            for pod in page.items.iter().filter(|pod| pods::node_name(pod).is_some()) {
                let volumes = users::volumes(pod).iter().filter(|volume| volume.ephemeral.is_none() || !is_shut_down(pod));
                let owner = |volume: &Volume| volume.ephemeral.as_ref().map(|_| meta::uid(&pod.metadata).to_owned()).unwrap_or_default();
                listed.used.extend(volumes.filter_map(|volume| Some((users::claim_name(pod, volume)?, owner(volume)))));
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = ListParams::default().limit(PAGE).continue_token(&token),
                None => return Ok(listed),
            }
        }
    }
}

/// A resource version as the number that it is.
fn revision(version: Option<&str>) -> u64 {
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_claim_is_used_by_pods_with_a_node() {
        let claim: PersistentVolumeClaim = serde_json::from_value(
            json!({"metadata": {"name": "p-v", "namespace": "ns", "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "u", "apiVersion": "v1", "controller": true}]}}),
        )
        .expect("a claim");
        let by_name = json!({"name": "x", "persistentVolumeClaim": {"claimName": "p-v"}});
        let ephemeral = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}});
        let pod = |volume: &Value, node: &str, more: Value| -> Pod {
            let mut metadata = json!({"name": "p", "namespace": "ns", "uid": "u"});
            meta::overlay(&mut metadata, &more);
            serde_json::from_value(json!({"metadata": metadata, "spec": {"nodeName": node, "containers": [], "volumes": [volume]}}))
                .expect("a Pod")
        };
        let gone = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
        for (volume, node, more, wanted) in [
            (&by_name, "n", json!({}), true),
            (&by_name, "", json!({}), false),
            // Its containers may still run.
            (&by_name, "n", gone.clone(), true),
            (&ephemeral, "n", json!({}), true),
            (&ephemeral, "n", json!({"uid": "other"}), false),
            (&ephemeral, "n", gone, false),
            (&json!({"name": "x", "persistentVolumeClaim": {"claimName": "other"}}), "n", json!({}), false),
        ] {
            assert_eq!(uses(&pod(volume, node, more.clone()), &claim), wanted, "{volume} on {node:?} {more}");
        }
    }
}
