//! ReplicaSet and ReplicationController: keep the wanted number of Pods of one template.
//!
//! Each of the two controllers watches its kind and Pods. It creates, deletes, adopts and releases Pods and writes the status of its
//! kind. It never touches a Pod that another controller owns, never counts Pods that are being deleted, and never counts again before the cache shows its
//! own writes (see [`Expectations`](crate::work::Expectations)).

mod plan;
mod replicated;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use api_client::events::{Recorder, reference};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use api_client::informer::{BY_CONTROLLER, Change, Informer, ObjectKey};

use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::work::{Controller, Expectations, Next, WorkQueue};
use crate::{claim, meta, pods, writes};
use plan::{Counted, Manage};
pub use replicated::Replicated;

/// The controller of one kind.
pub struct ReplicaSets<S> {
    client: kube::Client,
    recorder: Recorder,
    sets: Informer<S>,
    pods: Informer<Pod>,
    expectations: Arc<Expectations>,
}

/// Registers the controller of a kind.
pub fn build<S: Replicated>(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::default());
    let expectations = Arc::new(Expectations::default());
    let sets = context.feed(&queue, |change: &Change<S>| change.latest().map(|set| ObjectKey::from(set.meta())).into_iter().collect());
    let forgetting = Arc::clone(&expectations);
    context.on_change(&sets, move |change| {
        if let (Some(old), new) = (&change.old, &change.new)
            && new.as_ref().is_none_or(|new| new.meta().uid != old.meta().uid)
        {
            forgetting.forget(&ObjectKey::from(old.meta()));
        }
    });
    let (set_cache, observed) = (sets.clone(), Arc::clone(&expectations));
    let pods = context.feed(&queue, move |change: &Change<Pod>| {
        observe(change, &set_cache, &observed);
        touched(change, &set_cache)
    });
    let controller = ReplicaSets { client: context.client(), recorder: context.recorder(S::COMPONENT), sets, pods, expectations };
    context.run(Arc::new(controller), queue);
}

/// The object that a Pod names as its controller, if it is of this kind and has the UID of the reference.
fn owner<S: Replicated>(pod: &Pod, sets: &Informer<S>) -> Option<ObjectKey> {
    let reference = meta::controller_of(&pod.metadata).filter(|owner| owner.kind == S::kind(&()))?;
    let key = ObjectKey::new(meta::namespace(&pod.metadata), &reference.name);
    sets.get(&key).is_some_and(|set| set.meta().uid.as_deref() == Some(&reference.uid)).then_some(key)
}

/// Reports to the expectations what a change of a Pod fulfils.
fn observe<S: Replicated>(change: &Change<Pod>, sets: &Informer<S>, expectations: &Expectations) {
    let deleting = |pod: Option<&Arc<Pod>>| pod.is_some_and(|pod| meta::is_deleting(&pod.metadata));
    if let (None, Some(new)) = (&change.old, &change.new)
        && let Some(key) = owner(new, sets)
    {
        expectations.created(&key);
    }
    let going = change.new.is_none() || (deleting(change.new.as_ref()) && !deleting(change.old.as_ref()));
    if let Some(pod) = change.latest().filter(|_| going)
        && let Some(key) = owner(pod, sets)
    {
        expectations.deleted(&key, meta::uid(&pod.metadata));
    }
}

/// The objects that a change of a Pod concerns: its owners before and after, or, when it has none, those that could adopt it.
fn touched<S: Replicated>(change: &Change<Pod>, sets: &Informer<S>) -> Vec<ObjectKey> {
    let mut keys: Vec<ObjectKey> = change.both().filter_map(|pod| owner(pod, sets)).collect();
    if let Some(orphan) = change.new.as_ref().filter(|pod| meta::controller_of(&pod.metadata).is_none()) {
        let candidates = sets.in_namespace(meta::namespace(&orphan.metadata)).into_iter();
        let adopters = candidates.filter(|set| meta::matches(&set.selector(), orphan.metadata.labels.as_ref()));
        keys.extend(adopters.map(|set| ObjectKey::from(set.meta())));
    }
    keys
}

impl<S: Replicated> Controller for ReplicaSets<S> {
    const NAME: &'static str = S::CONTROLLER;
    const WORKERS: usize = 5;
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let Some(set) = self.sets.get(key) else {
            self.expectations.forget(key);
            return Ok(Next::OnChange);
        };
        // This is read before the Pods: expectations that are fulfilled now cannot be missing from them.
        let settled = self.expectations.satisfied(key);
        let selector = set.selector();
        let active = claim::candidates(&self.pods, set.meta()).into_iter().filter(|pod| pods::is_active(pod)).collect();
        let owned = claim::claim(&self.client, active, set.as_ref(), &selector).await?;
        let terminating = self.pods.indexed(BY_CONTROLLER, meta::uid(set.meta())).iter().filter(|pod| pods::is_terminating(pod)).count();
        let now = api_clock::now();
        let managed = if settled && !meta::is_deleting(set.meta()) { self.manage(&set, &owned, now).await } else { Ok(()) };
        let counted = Counted { active: &owned, terminating, failure: managed.as_ref().err().map(Failure::message) };
        let status = plan::status(set.as_ref(), &counted, now);
        writes::set_status(&self.client, set.as_ref(), set.status(), &status).await?;
        managed?;
        let min_ready = set.min_ready_seconds();
        Ok(Next::OnChange.or_after(owned.iter().filter_map(|pod| pods::available_in(pod, min_ready, now)).min()))
    }
}

impl<S: Replicated> ReplicaSets<S> {
    async fn manage(&self, set: &S, owned: &[Arc<Pod>], now: Timestamp) -> Result<(), Failure> {
        match plan::manage(set, owned, || self.related(set), now) {
            Manage::Nothing => Ok(()),
            Manage::Create(count) => self.create(set, count).await,
            Manage::Delete(surplus) => self.delete(set, surplus).await,
        }
    }

    /// The Pods of all objects of the kind with the same owner: crowding on a Node is counted over them.
    fn related(&self, set: &S) -> Vec<Arc<Pod>> {
        let siblings = match meta::controller_uid(set.meta()) {
            "" => vec![meta::uid(set.meta()).to_owned()],
            uid => self.sets.indexed(BY_CONTROLLER, uid).iter().map(|sibling| meta::uid(sibling.meta()).to_owned()).collect(),
        };
        siblings.iter().flat_map(|uid| self.pods.indexed(BY_CONTROLLER, uid)).collect()
    }

    /// Creates Pods in batches of 1, 2, 4, …: when the first fails (a quota, a bad template), the
    /// rest are not even tried. Upstream's slow start.
    async fn create(&self, set: &S, count: usize) -> Result<(), Failure> {
        let key = ObjectKey::from(set.meta());
        self.expectations.expect_creations(&key, count);
        let (mut left, mut batch) = (count, 1_usize);
        while left > 0 {
            let size = batch.min(left);
            let created = join_all((0..size).map(|_| self.create_one(set))).await;
            left -= size;
            let failed: Vec<Failure> = created.into_iter().filter_map(Result::err).collect();
            let skipped = if failed.is_empty() { 0 } else { left };
            for _ in 0..failed.len() + skipped {
                self.expectations.created(&key);
            }
            if let Some(failure) = failed.into_iter().next() {
                return if failure.is_namespace_terminating() { Ok(()) } else { Err(failure) };
            }
            batch *= 2;
        }
        Ok(())
    }

    async fn create_one(&self, set: &S) -> Result<(), Failure> {
        match writes::create(&self.client, &plan::pod(set)).await {
            Ok(pod) => {
                let message = format!("Created pod: {}", meta::name(&pod.metadata));
                self.recorder.normal(&reference(set), "SuccessfulCreate", message);
                Ok(())
            }
            Err(failure) => {
                if !failure.is_namespace_terminating() {
                    self.recorder.warning(&reference(set), "FailedCreate", format!("Error creating: {}", failure.message()));
                }
                Err(failure)
            }
        }
    }

    async fn delete(&self, set: &S, surplus: Vec<Arc<Pod>>) -> Result<(), Failure> {
        let key = ObjectKey::from(set.meta());
        self.expectations.expect_deletions(&key, surplus.iter().map(|pod| meta::uid(&pod.metadata).to_owned()));
        let deleted = join_all(surplus.iter().map(|pod| self.delete_one(set, &key, pod))).await;
        deleted.into_iter().collect()
    }

    async fn delete_one(&self, set: &S, key: &ObjectKey, pod: &Pod) -> Result<(), Failure> {
        let name = meta::name(&pod.metadata);
        let api = writes::api::<Pod>(&self.client, meta::namespace(&pod.metadata));
        let precondition = kube::api::Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let result = api.delete(name, &kube::api::DeleteParams::default().preconditions(precondition)).await;
        match crate::failure::During::during(result, "deleting", format!("Pod {}", ObjectKey::from(&pod.metadata))) {
            Ok(_) => {
                self.recorder.normal(&reference(set), "SuccessfulDelete", format!("Deleted pod: {name}"));
                Ok(())
            }
            Err(failure) => {
                self.expectations.deleted(key, meta::uid(&pod.metadata));
                if failure.is_not_found() {
                    return Ok(());
                }
                self.recorder.warning(&reference(set), "FailedDelete", format!("Error deleting: {}", failure.message()));
                Err(failure)
            }
        }
    }
}
