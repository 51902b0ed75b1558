//! DaemonSet: one Pod on every node that is for it.
//!
//! Watches DaemonSets, Pods, Nodes and ControllerRevisions. Creates, deletes, adopts and releases Pods; writes revisions and
//! DaemonSet status. Never binds a Pod: its affinity names the node, and the scheduler binds it. Never counts again before the
//! cache shows its own writes (see [`Expectations`](crate::work::Expectations)).

mod apply;
mod backoff;
mod nodes;
mod plan;
mod rollout;
mod status;
mod template;

use std::sync::Arc;

use api_client::events::{Recorder, reference};
use api_client::informer::{BY_CONTROLLER, Change, Informer, ObjectKey};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use crate::context::ControllerContext;
use crate::failure::{Failure, gone_is_fine};
use crate::pod_control::PodControl;
use crate::revisions::{self, History, REVISION_LABEL, Source};
use crate::work::{Controller, Expectations, Next, WorkQueue};
use crate::{claim, meta, pods, writes};
use backoff::Backoffs;
use plan::{Plan, Snapshot};

/// The revisions that are stored without a limit in the spec, upstream's default.
const HISTORY_LIMIT: i32 = 10;

/// The controller.
pub struct DaemonSets {
    client: kube::Client,
    control: PodControl,
    recorder: Recorder,
    sets: Informer<DaemonSet>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    revisions: Informer<ControllerRevision>,
    expectations: Arc<Expectations>,
    backoffs: Backoffs,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("daemonset"));
    let expectations = Arc::new(Expectations::default());
    let sets =
        context.feed(&queue, |change: &Change<DaemonSet>| change.latest().map(|set| ObjectKey::from(&set.metadata)).into_iter().collect());
    let forgetting = Arc::clone(&expectations);
    context.on_change(&sets, move |change| {
        if let (Some(old), new) = (&change.old, &change.new)
            && new.as_ref().is_none_or(|new| new.metadata.uid != old.metadata.uid)
        {
            forgetting.forget(&ObjectKey::from(&old.metadata));
        }
    });
    let (set_cache, observed) = (sets.clone(), Arc::clone(&expectations));
    let pods = context.feed(&queue, move |change: &Change<Pod>| {
        observe(change, &set_cache, &observed);
        touched(&change.old, &change.new, |pod| &pod.metadata, &set_cache)
    });
    let set_cache = sets.clone();
    let revisions = context.feed(&queue, move |change: &Change<ControllerRevision>| {
        touched(&change.old, &change.new, |revision| &revision.metadata, &set_cache)
    });
    let set_cache = sets.clone();
    let nodes = context.feed(&queue, move |change: &Change<Node>| node_changed(change, &set_cache));
    let (client, recorder, backoffs) = (context.client(), context.recorder(DaemonSets::NAME), Backoffs::default());
    let control = PodControl::new(client.clone(), recorder.clone(), Arc::clone(&expectations));
    context.run(Arc::new(DaemonSets { client, control, recorder, sets, pods, nodes, revisions, expectations, backoffs }), queue);
}

/// The DaemonSet that an object names as its controller, if it has the UID of the reference.
fn owner(object: &ObjectMeta, sets: &Informer<DaemonSet>) -> Option<ObjectKey> {
    let reference = meta::controller_of(object).filter(|owner| owner.kind == "DaemonSet")?;
    let key = ObjectKey::new(meta::namespace(object), &reference.name);
    sets.get(&key).is_some_and(|set| set.metadata.uid.as_deref() == Some(&reference.uid)).then_some(key)
}

/// Reports to the expectations what a change of a Pod fulfils.
fn observe(change: &Change<Pod>, sets: &Informer<DaemonSet>, expectations: &Expectations) {
    let deleting = |pod: Option<&Arc<Pod>>| pod.is_some_and(|pod| meta::is_deleting(&pod.metadata));
    if let (None, Some(new)) = (&change.old, &change.new)
        && let Some(key) = owner(&new.metadata, sets)
    {
        expectations.created(&key);
    }
    let going = change.new.is_none() || (deleting(change.new.as_ref()) && !deleting(change.old.as_ref()));
    if let Some(pod) = change.latest().filter(|_| going)
        && let Some(key) = owner(&pod.metadata, sets)
    {
        expectations.deleted(&key, meta::uid(&pod.metadata));
    }
}

/// The DaemonSets that a change of an object concerns: its owners before and after, or, when it has none, the DaemonSets that
/// could adopt it.
fn touched<K>(old: &Option<Arc<K>>, new: &Option<Arc<K>>, meta_of: fn(&K) -> &ObjectMeta, sets: &Informer<DaemonSet>) -> Vec<ObjectKey> {
    let both = old.iter().chain(new.iter());
    let mut keys: Vec<ObjectKey> = both.filter_map(|object| owner(meta_of(object), sets)).collect();
    if let Some(orphan) = new.as_ref().map(|new| meta_of(new)).filter(|orphan| meta::controller_of(orphan).is_none()) {
        let candidates = sets.in_namespace(meta::namespace(orphan)).into_iter();
        let adopters = candidates.filter(|set| meta::matches(&meta::selector(&set.spec.selector), orphan.labels.as_ref()));
        keys.extend(adopters.map(|set| ObjectKey::from(&set.metadata)));
    }
    keys
}

/// All DaemonSets, when a node appears, goes, or changes in what decides which Pods it gets.
fn node_changed(change: &Change<Node>, sets: &Informer<DaemonSet>) -> Vec<ObjectKey> {
    let taints = |node: &Node| node.spec.as_ref().and_then(|spec| spec.taints.clone());
    if let (Some(old), Some(new)) = (&change.old, &change.new)
        && old.metadata.labels == new.metadata.labels
        && taints(old) == taints(new)
    {
        return Vec::new();
    }
    sets.list().iter().map(|set| ObjectKey::from(&set.metadata)).collect()
}

impl Controller for DaemonSets {
    const NAME: &'static str = "daemonset-controller";
    const WORKERS: usize = 2;
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let Some(set) = self.sets.get(key) else { return Ok(Next::OnChange) };
        let selector = meta::selector(&set.spec.selector);
        if selector.is_everything() {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            self.recorder.warning(&reference(set.as_ref()), "SelectingAll", message);
            return Ok(Next::OnChange);
        }
        if meta::is_deleting(&set.metadata) {
            return Ok(Next::OnChange);
        }
        // Before the caches are read: what arrives later is in the next pass.
        let settled = self.expectations.satisfied(key);
        let sorted = revisions::owned(&self.client, &self.revisions, set.as_ref(), &selector).await?;
        if self.merge(&set, &sorted).await? {
            // The relabelled Pods and the deleted revisions lead to the next pass.
            return Ok(Next::OnChange);
        }
        let collisions = set.status.as_ref().and_then(|status| status.collision_count).unwrap_or(0);
        let source = Source { owner: set.as_ref(), template: &set.spec.template, collisions, hash_label: REVISION_LABEL };
        let history = revisions::ensure(&self.client, &source, sorted).await?;
        let owned = claim::claim(&self.client, claim::candidates(&self.pods, &set.metadata), set.as_ref(), &selector).await?;
        let (plan, status) = self.decide(&set, &history, &owned, settled);
        let look_again = plan.look_again;
        let managed = self.apply(&set, hash(&history.update), plan).await;
        writes::set_status(&self.client, set.as_ref(), set.status.as_ref(), &status).await?;
        managed?;
        if settled {
            self.truncate(&set, &history).await?;
        }
        let (min_ready, now) = (set.spec.min_ready_seconds.unwrap_or(0), api_clock::now());
        let available_in = owned.iter().filter_map(|pod| pods::available_in(pod, min_ready, now)).min();
        Ok(Next::OnChange.or_after(look_again).or_after(available_in))
    }
}

fn backoff_key(set: &DaemonSet, node: &str) -> backoff::Key {
    let observed = set.status.as_ref().and_then(|status| status.observed_generation).unwrap_or(0);
    (meta::uid(&set.metadata).to_owned(), observed, node.to_owned())
}

/// The hash of a revision, which its Pods have as a label.
fn hash(revision: &ControllerRevision) -> &str {
    meta::label(&revision.metadata, REVISION_LABEL).unwrap_or_else(|| revisions::name(revision))
}

impl DaemonSets {
    /// Deletes revisions that are equal to the newest one of the present template, after their Pods have its hash; returns whether
    /// there were any. Older versions made them.
    async fn merge(&self, set: &DaemonSet, sorted: &[Arc<ControllerRevision>]) -> Result<bool, Failure> {
        let Some((newest, duplicates)) = revisions::duplicates(sorted, &set.spec.template) else { return Ok(false) };
        for pod in self.pods.indexed(BY_CONTROLLER, meta::uid(&set.metadata)) {
            let label = meta::label(&pod.metadata, REVISION_LABEL);
            if duplicates.iter().any(|duplicate| Some(hash(duplicate)) == label) {
                let patch = json!({"metadata": {"labels": {REVISION_LABEL: hash(&newest)}}});
                gone_is_fine(writes::patch(&self.client, pod.as_ref(), patch).await)?;
            }
        }
        revisions::delete(&self.client, &duplicates).await.map(|()| true)
    }

    /// The next writes and the status. Before the cache shows the writes of the last pass, there are none.
    fn decide(&self, set: &DaemonSet, history: &History, owned: &[Arc<Pod>], settled: bool) -> (Plan, DaemonSetStatus) {
        let assignment = plan::assign(set, &self.nodes.list(), owned);
        let backing_off = |node: &str| self.backoffs.left(&backoff_key(set, node));
        let snapshot =
            Snapshot { set, hash: hash(&history.update), assignment: &assignment, backing_off: &backing_off, now: api_clock::now() };
        let plan = if settled { plan::plan(&snapshot) } else { Plan::default() };
        let observed = if settled { set.metadata.generation } else { set.status.as_ref().and_then(|status| status.observed_generation) };
        let status = status::status(&snapshot, history.collisions, observed);
        (plan, status)
    }

    /// Deletes the oldest revisions beyond the limit, but none that a Pod has.
    async fn truncate(&self, set: &DaemonSet, history: &History) -> Result<(), Failure> {
        let Ok(limit) = usize::try_from(set.spec.revision_history_limit.unwrap_or(HISTORY_LIMIT)) else { return Ok(()) };
        let pods = self.pods.indexed(BY_CONTROLLER, meta::uid(&set.metadata));
        let in_use = |revision: &ControllerRevision| {
            let hash = hash(revision);
            pods.iter().any(|pod| meta::label(&pod.metadata, REVISION_LABEL) == Some(hash))
        };
        let expired = revisions::expired(&history.others, in_use, history.others.len().saturating_sub(limit));
        revisions::delete(&self.client, &expired).await
    }
}
