//! ResourceClaims of Pods: makes them from templates, and takes them back when no Pod uses them any more.
//!
//! Watches Pods with claims, ResourceClaims and ResourceClaimTemplates. Writes ResourceClaims for the claims of Pods that name a template,
//! and their names to the Pods' `status.resourceClaimStatuses`; reserves allocated claims for Pods that were bound without the scheduler;
//! removes Pods that ended from `status.reservedFor`, deallocates claims that nobody uses, removes their finalizer, and deletes claims that
//! were made for a Pod that has ended, be it by this controller or by the scheduler for extended resources. It allocates nothing.

mod consumers;
mod generate;
mod release;

use std::sync::Arc;

use api_client::events::{Recorder, reference};
use api_client::informer::{BY_CONTROLLER, Change, Informer, ObjectKey};
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate};
use kube::api::DeleteParams;
use serde_json::json;

use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, pods, writes};
use consumers::Consumers;
use generate::Lookup;
pub use release::reserved_for;
use release::{Action, PodState};

/// Upstream's component in the controller's events.
const COMPONENT: &str = "resource_claim";

/// The controller.
pub struct ResourceClaims {
    client: kube::Client,
    recorder: Recorder,
    pods: Informer<Pod>,
    claims: Informer<ResourceClaim>,
    templates: Informer<ResourceClaimTemplate>,
}

/// A piece of work.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// The claims that a Pod needs.
    Pod(ObjectKey),
    /// The Pods that use a claim.
    Claim(ObjectKey),
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("resource_claim"));
    let consumers = Arc::new(Consumers::default());
    let of_pods = Arc::clone(&consumers);
    let pods = context.feed(&queue, move |change: &Change<Pod>| pod_changed(&of_pods, change));
    let of_claims = Arc::clone(&consumers);
    let claims = context.feed(&queue, move |change: &Change<ResourceClaim>| {
        let Some(claim) = change.latest() else { return Vec::new() };
        let key = ObjectKey::from(&claim.metadata);
        let owner = meta::controller_of(&claim.metadata).filter(|owner| owner.kind == "Pod");
        let owner = owner.map(|owner| ObjectKey::new(meta::namespace(&claim.metadata), &owner.name));
        let users = of_claims.of_claim(&key).into_iter().chain(owner).map(Key::Pod);
        change.new.iter().map(|_| Key::Claim(key.clone())).chain(users).collect()
    });
    let templates = context.feed(&queue, move |change: &Change<ResourceClaimTemplate>| {
        let template = change.new.as_ref().map(|template| ObjectKey::from(&template.metadata));
        template.into_iter().flat_map(|template| consumers.of_template(&template)).map(Key::Pod).collect()
    });
    let recorder = context.recorder(COMPONENT);
    context.run(Arc::new(ResourceClaims { client: context.client(), recorder, pods, claims, templates }), queue);
}

/// The work after a change of a Pod. A Pod without claims makes none.
fn pod_changed(consumers: &Consumers, change: &Change<Pod>) -> Vec<Key> {
    if !change.both().any(|pod| has_claims(pod)) {
        return Vec::new();
    }
    let Some(latest) = change.latest() else { return Vec::new() };
    let key = ObjectKey::from(&latest.metadata);
    consumers.set(&key, change.new.as_deref());
    let mut keys = Vec::new();
    for pod in change.both() {
        let is_gone = change.new.as_ref().is_none_or(|new| meta::uid(&new.metadata) != meta::uid(&pod.metadata));
        if is_gone || is_done(pod) {
            let namespace = meta::namespace(&pod.metadata);
            keys.extend(claim_names(pod).map(|name| Key::Claim(ObjectKey::new(namespace, name))));
        }
    }
    keys.extend(change.new.as_ref().filter(|pod| !is_done(pod)).map(|_| Key::Pod(key)));
    keys.dedup();
    keys
}

/// The claims in the Pod's spec.
pub fn claims_of(pod: &Pod) -> &[PodResourceClaim] {
    pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_deref()).unwrap_or_default()
}

/// The name of the claim that the scheduler created for the Pod's extended resources.
pub fn special_claim(pod: &Pod) -> Option<&str> {
    Some(&pod.status.as_ref()?.extended_resource_claim_status.as_ref()?.resource_claim_name)
}

/// Whether the Pod has claims, or may get them.
pub fn has_claims(pod: &Pod) -> bool {
    !claims_of(pod).is_empty() || special_claim(pod).is_some()
}

/// The names of the Pod's ResourceClaims, as far as they have names.
fn claim_names(pod: &Pod) -> impl Iterator<Item = &str> {
    claims_of(pod).iter().filter_map(|claim| Lookup::new(pod, claim).name()).chain(special_claim(pod))
}

/// The ResourceClaims of the Pod that the cache has. A claim that was made for another Pod is none of them.
pub fn cached_claims(pod: &Pod, cache: &Informer<ResourceClaim>) -> Vec<Arc<ResourceClaim>> {
    let cached = |name: &str, must_be_own: bool| {
        let cached = cache.get(&ObjectKey::new(meta::namespace(&pod.metadata), name))?;
        let is_usable = !must_be_own || generate::is_for_pod(&cached, pod);
        is_usable.then_some(cached)
    };
    let of_spec = claims_of(pod).iter().filter_map(|claim| {
        let name = Lookup::new(pod, claim).name()?;
        cached(name, claim.resource_claim_template_name.is_some())
    });
    of_spec.chain(special_claim(pod).and_then(|name| cached(name, true))).collect()
}

/// Whether the claim is reserved for the Pod.
pub fn is_reserved_for(claim: &ResourceClaim, pod: &Pod) -> bool {
    reserved_for(claim).iter().any(|consumer| consumer.uid == meta::uid(&pod.metadata))
}

/// Whether it is certain that no container of the Pod runs or will run.
fn is_done(pod: &Pod) -> bool {
    pods::is_terminal(pod) || meta::is_deleting(&pod.metadata) && pods::node_name(pod).is_none()
}

impl Controller for ResourceClaims {
    const NAME: &'static str = "resourceclaim-controller";
    const WORKERS: usize = 10;
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        match key {
            Key::Pod(key) => self.sync_pod(key).await?,
            Key::Claim(key) => self.sync_claim(key).await?,
        }
        Ok(Next::OnChange)
    }
}

impl ResourceClaims {
    async fn sync_pod(&self, key: &ObjectKey) -> Result<(), Failure> {
        let Some(pod) = self.pods.get(key).filter(|pod| !meta::is_deleting(&pod.metadata)) else { return Ok(()) };
        let mut statuses = generate::statuses(&pod);
        let mut is_new = false;
        for claim in claims_of(&pod) {
            let name = self.generated(&pod, claim).await.inspect_err(|failure| {
                let message = format!("PodResourceClaim {}: {}", claim.name, failure.message());
                self.recorder.warning(&reference(pod.as_ref()), "FailedResourceClaimCreation", message);
            })?;
            if let Some(name) = name {
                is_new |= generate::set_status(&mut statuses, &claim.name, name);
            }
        }
        if is_new {
            writes::patch_status(&self.client, pod.as_ref(), json!({"resourceClaimStatuses": statuses})).await?;
            // The change of the Pod makes another pass.
            return Ok(());
        }
        if pods::node_name(&pod).is_some() { self.reserve(&pod).await } else { Ok(()) }
    }

    /// The name of the claim that was made for the claim of the Pod; `None` when the Pod needs none from a template.
    async fn generated(&self, pod: &Pod, claim: &PodResourceClaim) -> Result<Option<String>, Failure> {
        let Some(template) = &claim.resource_claim_template_name else { return Ok(None) };
        let namespace = meta::namespace(&pod.metadata);
        match Lookup::new(pod, claim) {
            Lookup::NotNeeded => return Ok(None),
            Lookup::Named(name) => {
                let existing = self.claims.get(&ObjectKey::new(namespace, name));
                if existing.is_some_and(|claim| generate::is_for_pod(&claim, pod)) {
                    return Ok(Some(name.to_owned()));
                }
            }
            Lookup::NotCreated => {}
        }
        // An earlier pass may have made it without writing its name to the Pod.
        let owned = self.claims.indexed(BY_CONTROLLER, meta::uid(&pod.metadata));
        if let Some(claim) = owned.iter().find(|owned| generate::is_of(owned, &claim.name)) {
            return Ok(Some(meta::name(&claim.metadata).to_owned()));
        }
        let key = ObjectKey::new(namespace, template);
        let template = self.templates.get(&key).ok_or_else(|| Failure::Unusable {
            object: format!("resource claim template {template:?}"),
            problem: format!("resourceclaimtemplate.resource.k8s.io {template:?} not found"),
        })?;
        let created = writes::create(&self.client, &generate::claim(pod, claim, &template)).await?;
        // Without it in the cache, the next pass would make another one.
        writes::delivered(&self.claims, &created).await?;
        Ok(Some(meta::name(&created.metadata).to_owned()))
    }

    /// Reserves claims for a Pod that has a node, where the scheduler did not.
    async fn reserve(&self, pod: &Pod) -> Result<(), Failure> {
        for claim in cached_claims(pod, &self.claims) {
            let Some(status) = claim.status.as_ref().filter(|status| status.allocation.is_some()) else { continue };
            if !is_done(pod) && !is_reserved_for(&claim, pod) {
                let mut reserved = status.reserved_for.clone().unwrap_or_default();
                reserved.push(ResourceClaimConsumerReference {
                    api_group: None,
                    resource: "pods".to_owned(),
                    name: meta::name(&pod.metadata).to_owned(),
                    uid: meta::uid(&pod.metadata).to_owned(),
                });
                writes::patch_status(&self.client, claim.as_ref(), json!({"reservedFor": reserved})).await?;
            }
        }
        Ok(())
    }

    async fn sync_claim(&self, key: &ObjectKey) -> Result<(), Failure> {
        let Some(claim) = self.claims.get(key) else { return Ok(()) };
        let mut consumers = Vec::new();
        for consumer in release::reserved_for(&claim) {
            consumers.push((consumer.clone(), self.state_of(&claim, consumer).await?));
        }
        let owner = meta::controller_of(&claim.metadata).filter(|owner| owner.kind == "Pod" && owner.api_version == "v1");
        let owner = match owner {
            Some(owner) => Some(self.state_of_owner(&ObjectKey::new(&key.namespace, &owner.name), &owner.uid).await?),
            None => None,
        };
        let mut present = ResourceClaim::clone(&claim);
        for action in release::plan(&claim, &consumers, owner) {
            match action {
                Action::SetStatus(status) => present = writes::patch_status(&self.client, &present, status).await?,
                Action::RemoveFinalizer => match writes::remove_finalizer(&self.client, &present, release::FINALIZER).await? {
                    Some(left) => present = left,
                    None => return Ok(()),
                },
                Action::Delete => writes::delete(&self.client, &present, DeleteParams::default()).await?,
            }
        }
        Ok(())
    }

    /// Whether a Pod for which the claim is reserved still needs it.
    async fn state_of(&self, claim: &ResourceClaim, consumer: &ResourceClaimConsumerReference) -> Result<PodState, Failure> {
        if consumer.resource != "pods" || consumer.api_group.as_ref().is_some_and(|group| !group.is_empty()) {
            return Err(Failure::Unusable {
                object: format!("ResourceClaim {}", ObjectKey::from(&claim.metadata)),
                problem: format!("unsupported ReservedFor entry: {}/{}", consumer.resource, consumer.name),
            });
        }
        let key = ObjectKey::new(meta::namespace(&claim.metadata), &consumer.name);
        state(self.pods.get(&key).as_deref(), &consumer.uid, writes::get::<Pod>(&self.client, &key)).await
    }

    /// Whether the Pod for which the claim was made still needs it. If the cache has no Pod of the name, the garbage collector deletes
    /// the claim.
    async fn state_of_owner(&self, key: &ObjectKey, uid: &str) -> Result<PodState, Failure> {
        match self.pods.get(key) {
            Some(cached) => state(Some(&cached), uid, writes::get::<Pod>(&self.client, key)).await,
            None => Ok(PodState::Unknown),
        }
    }
}

/// Whether the Pod with that UID still needs claims. The cache may be older than the Pod and have none, or the one before of the same name:
/// then `stored`, a read from the server, decides.
async fn state(cached: Option<&Pod>, uid: &str, stored: impl Future<Output = Result<Option<Pod>, Failure>>) -> Result<PodState, Failure> {
    let has_uid = |pod: &Pod| meta::uid(&pod.metadata) == uid;
    let state = |pod: &Pod| if is_done(pod) { PodState::Done } else { PodState::Active };
    if let Some(pod) = cached.filter(|pod| has_uid(pod)) {
        return Ok(state(pod));
    }
    Ok(stored.await?.filter(has_uid).map_or(PodState::Done, |pod| state(&pod)))
}

#[cfg(test)]
mod tests;
