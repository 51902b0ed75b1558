//! StatefulSet: Pods with names, host names and claims that stay, one for each ordinal.
//!
//! Watches StatefulSets, their Pods, their ControllerRevisions and PersistentVolumeClaims. Creates, changes, deletes, adopts and
//! releases Pods; creates claims and changes their owners; writes revisions and StatefulSet status. Never creates a Pod while
//! one of its name exists, also one that is being deleted on a lost node. Never changes or deletes a claim. Never plans before the
//! cache shows its own writes of Pods (see [`UnseenWrites`](crate::work::UnseenWrites)); a cache that is stale in another way leads to a
//! write that the server refuses: names are unique, deletions carry the UID, changes the revision that was read.

mod apply;
mod identity;
mod plan;
mod retention;
mod status;

use std::sync::Arc;

use api_client::events::Recorder;
use api_client::informer::{Change, Informer, ObjectKey};
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::work::{Controller, Next, UnseenWrites, WorkQueue};
use crate::{claim, meta, revisions, writes};
use plan::{Revisions, Snapshot};

/// The revisions that are stored without a limit in the spec, upstream's default.
const HISTORY_LIMIT: i32 = 10;

/// The controller.
pub struct StatefulSets {
    client: kube::Client,
    recorder: Recorder,
    sets: Informer<StatefulSet>,
    pods: Informer<Pod>,
    revisions: Informer<ControllerRevision>,
    claims: Informer<PersistentVolumeClaim>,
    unseen: UnseenWrites,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("statefulset"));
    let sets = context
        .feed(&queue, |change: &Change<StatefulSet>| change.latest().map(|set| ObjectKey::from(&set.metadata)).into_iter().collect());
    let set_cache = sets.clone();
    let pods = context.feed(&queue, move |change: &Change<Pod>| touched(change, &set_cache));
    let claims = context.feed(&queue, awaited);
    let revisions = context.informer();
    let (client, recorder) = (context.client(), context.recorder(StatefulSets::NAME));
    context.run(Arc::new(StatefulSets { client, recorder, sets, pods, revisions, claims, unseen: UnseenWrites::default() }), queue);
}

/// The StatefulSet that an object names as its controller, if it has the UID of the reference.
fn owner(object: &ObjectMeta, sets: &Informer<StatefulSet>) -> Option<ObjectKey> {
    let reference = meta::controller_of(object).filter(|owner| owner.kind == "StatefulSet")?;
    let key = ObjectKey::new(meta::namespace(object), &reference.name);
    sets.get(&key).is_some_and(|set| set.metadata.uid.as_deref() == Some(&reference.uid)).then_some(key)
}

/// The StatefulSets that a change of a Pod concerns: its owners before and after, or, when it has none, the StatefulSets that
/// could adopt it.
fn touched(change: &Change<Pod>, sets: &Informer<StatefulSet>) -> Vec<ObjectKey> {
    let mut keys: Vec<ObjectKey> = change.both().filter_map(|pod| owner(&pod.metadata, sets)).collect();
    if let Some(orphan) = change.new.as_ref().filter(|pod| meta::controller_of(&pod.metadata).is_none()) {
        let candidates = sets.in_namespace(meta::namespace(&orphan.metadata)).into_iter();
        let adopters = candidates.filter(|set| meta::matches(&meta::selector(&set.spec.selector), orphan.metadata.labels.as_ref()));
        keys.extend(adopters.map(|set| ObjectKey::from(&set.metadata)));
    }
    keys
}

/// The StatefulSet that may wait for a claim to be gone: the owner, or that of the Pod that is the owner.
fn awaited(change: &Change<PersistentVolumeClaim>) -> Vec<ObjectKey> {
    let Some(gone) = change.old.as_ref().filter(|_| change.new.is_none()) else { return Vec::new() };
    let set = |kind: &str, name: &str| match kind {
        "StatefulSet" => Some(name.to_owned()),
        "Pod" => identity::parent_and_ordinal(name).map(|(parent, _)| parent.to_owned()),
        _ => None,
    };
    let owners = gone.metadata.owner_references.iter().flatten();
    owners.filter_map(|owner| set(&owner.kind, &owner.name)).map(|name| ObjectKey::new(meta::namespace(&gone.metadata), name)).collect()
}

impl Controller for StatefulSets {
    const NAME: &'static str = "statefulset-controller";
    const WORKERS: usize = 5;
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let Some(set) = self.sets.get(key) else {
            self.unseen.forget(key);
            return Ok(Next::OnChange);
        };
        if let Some(wait) = self.unseen.wait(key, meta::uid(&set.metadata), &self.pods) {
            return Ok(Next::After(wait));
        }
        let selector = meta::selector(&set.spec.selector);
        let members = claim::candidates(&self.pods, &set.metadata).into_iter().filter(|pod| identity::ordinal(&set, pod).is_some());
        let pods = claim::claim(&self.client, members.collect(), set.as_ref(), &selector).await?;
        let sorted = revisions::owned(&self.client, &self.revisions, set.as_ref(), &selector).await?;
        let (revisions, history) = match self.revisions(&set, sorted).await? {
            Some(both) => both,
            None => return Ok(Next::OnChange),
        };
        let claim = |name: &str| self.claims.get(&ObjectKey::new(&key.namespace, name));
        let plan = plan::plan(&Snapshot { set: &set, revisions: &revisions, pods: &pods, claim: &claim, now: api_clock::now() });
        let applied = self.apply(&set, plan.phases).await;
        writes::set_status(&self.client, set.as_ref(), set.status.as_ref(), &plan.status).await?;
        self.truncate(&set, &pods, &revisions, &history).await?;
        applied?;
        Ok(Next::OnChange.or_after(plan.look_again))
    }
}

impl StatefulSets {
    /// The revisions that Pods are created of, and all others, oldest first. A set that is being deleted gets no new revision;
    /// `None` if it has none.
    async fn revisions(
        &self,
        set: &StatefulSet,
        sorted: Vec<Arc<ControllerRevision>>,
    ) -> Result<Option<(Revisions, Vec<Arc<ControllerRevision>>)>, Failure> {
        let status = set.status.clone().unwrap_or_default();
        let named = |all: &[Arc<ControllerRevision>], name: &Option<String>| {
            all.iter().find(|revision| name.as_deref() == Some(revisions::name(revision))).cloned()
        };
        let collisions = status.collision_count.unwrap_or(0);
        if meta::is_deleting(&set.metadata) {
            let Some(update) = named(&sorted, &status.update_revision) else { return Ok(None) };
            let current = named(&sorted, &status.current_revision).unwrap_or_else(|| Arc::clone(&update));
            let current_template = set.spec.template.clone();
            return Ok(Some((Revisions { current, current_template, update, collisions }, sorted)));
        }
        let source = revisions::Source { owner: set, template: &set.spec.template, collisions, hash_label: revisions::HASH_LABEL };
        let history = revisions::ensure(&self.client, &source, sorted).await?;
        let revisions::History { update, others, collisions } = history;
        let (current, current_template) = match named(&others, &status.current_revision) {
            Some(current) => (Arc::clone(&current), revisions::template(&current)?),
            None => (Arc::clone(&update), set.spec.template.clone()),
        };
        Ok(Some((Revisions { current, current_template, update, collisions }, others)))
    }

    /// Deletes the oldest revisions beyond the limit that no Pod uses.
    async fn truncate(
        &self,
        set: &StatefulSet,
        pods: &[Arc<Pod>],
        revisions: &Revisions,
        history: &[Arc<ControllerRevision>],
    ) -> Result<(), Failure> {
        let Ok(limit) = usize::try_from(set.spec.revision_history_limit.unwrap_or(HISTORY_LIMIT)) else { return Ok(()) };
        let in_use = |revision: &ControllerRevision| {
            let name = revisions::name(revision);
            let live = [&revisions.current, &revisions.update];
            live.iter().any(|live| revisions::name(live) == name) || pods.iter().any(|pod| identity::revision(pod) == name)
        };
        let unused = history.iter().filter(|revision| !in_use(revision)).count();
        let expired = revisions::expired(history, in_use, unused.saturating_sub(limit));
        revisions::delete(&self.client, &expired).await
    }
}
