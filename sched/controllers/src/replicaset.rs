//! ReplicaSet and ReplicationController: keep the wanted number of Pods of one template.
//!
//! Each of the two controllers watches its kind and Pods. It creates, deletes, adopts and releases Pods and writes the status of
//! its kind. It never touches a Pod that another controller owns, never counts Pods that are being deleted, and never counts again
//! before the cache shows its own writes (see [`Expectations`](crate::work::Expectations)).

mod plan;
mod replicated;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use api_client::informer::{BY_CONTROLLER, Change, Informer, ObjectKey};

use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::pod_control::PodControl;
use crate::work::{Controller, Expectations, Next, WorkQueue};
use crate::{claim, meta, metrics, pods, writes};
use plan::{Counted, Manage};
pub use replicated::Replicated;

/// The controller of one kind.
pub struct ReplicaSets<S> {
    client: kube::Client,
    control: PodControl,
    sets: Informer<S>,
    pods: Informer<Pod>,
    expectations: Arc<Expectations>,
}

/// Registers the controller of a kind.
pub fn build<S: Replicated>(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new(S::QUEUE));
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
    let control = PodControl::new(context.client(), context.recorder(S::COMPONENT), Arc::clone(&expectations));
    let controller = ReplicaSets { client: context.client(), control, sets, pods, expectations };
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
            Manage::Create(count) => {
                self.expectations.expect_creations(&ObjectKey::from(set.meta()), count);
                self.control.create(set, &vec![plan::pod(set); count]).await.1
            }
            Manage::Delete(surplus) => {
                plan::age_ratios(owned, &surplus, now).into_iter().for_each(|ratio| metrics::DELETION_AGE_RATIO.observe([], ratio));
                let uids = surplus.iter().map(|pod| meta::uid(&pod.metadata).to_owned());
                self.expectations.expect_deletions(&ObjectKey::from(set.meta()), uids);
                self.control.delete(set, &surplus).await.result
            }
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
}
