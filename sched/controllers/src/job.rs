//! Job: runs Pods until enough of them have succeeded, or until too many have failed.
//!
//! Watches Jobs and Pods. Creates, deletes, adopts and releases Pods, adds and removes their tracking finalizer, and writes Job
//! status. Leaves a Job alone that has ended or that names another manager. Counts the end of each Pod once, also across a kill
//! (see [`track`]). A Pod whose Job is gone loses the finalizer, so that it can be deleted.

mod apply;
mod counts;
mod indexes;
mod member;
mod plan;
mod policies;
mod removals;
mod track;

use std::sync::Arc;
use std::time::Duration;

use api_client::events::Recorder;
use api_client::informer::{BY_CONTROLLER, Change, Informer, ObjectKey};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::time::Instant;

use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::pod_control::PodControl;
use crate::work::{Controller, Expectations, Next, WorkQueue};
use crate::{claim, jobs, meta, metrics, pods, writes};
use counts::Snapshot;
use removals::Removals;

/// The manager that `spec.managedBy` names when it is this controller.
const MANAGER: &str = "kubernetes.io/job-controller";
/// A pass after a change of a Pod waits for more changes: a status is written for many Pods at once. Upstream waits a second.
const BATCH_PERIOD: Duration = Duration::from_millis(50);

/// A piece of work.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A Job.
    Job(ObjectKey),
    /// A Pod that may have the finalizer of a Job that is gone or has ended.
    Orphan(ObjectKey),
}

/// The controller.
pub struct Jobs {
    client: kube::Client,
    control: PodControl,
    recorder: Recorder,
    jobs: Informer<Job>,
    pods: Informer<Pod>,
    expectations: Arc<Expectations>,
    removals: Arc<Removals>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("job"));
    let (expectations, removals) = (Arc::new(Expectations::default()), Arc::new(Removals::default()));
    let jobs = context.informer::<Job>();
    let pods = context.informer::<Pod>();
    let (adding, pod_cache) = (Arc::clone(&queue), pods.clone());
    context.on_change(&jobs, move |change: &Change<Job>| {
        let Some(job) = change.latest() else { return };
        if change.new.is_none() || jobs::finished(job).is_some() {
            let members = pod_cache.indexed(BY_CONTROLLER, meta::uid(&job.metadata));
            members.iter().filter(|pod| member::is_tracked(pod)).for_each(|pod| adding.add(Key::Orphan(ObjectKey::from(&pod.metadata))));
        }
        adding.add(Key::Job(ObjectKey::from(&job.metadata)));
    });
    let (expected, removed) = (Arc::clone(&expectations), Arc::clone(&removals));
    context.on_change(&jobs, move |change: &Change<Job>| {
        if let (Some(old), new) = (&change.old, &change.new)
            && new.as_ref().is_none_or(|new| new.metadata.uid != old.metadata.uid)
        {
            expected.forget(&ObjectKey::from(&old.metadata));
            removed.forget(&ObjectKey::from(&old.metadata));
        }
    });
    let (adding, job_cache) = (Arc::clone(&queue), jobs.clone());
    let (expected, removed) = (Arc::clone(&expectations), Arc::clone(&removals));
    context.on_change(&pods, move |change: &Change<Pod>| {
        observe(change, &job_cache, &expected, &removed);
        touched(change, &job_cache).into_iter().for_each(|key| match key {
            Key::Job(_) => adding.add_after(key, BATCH_PERIOD),
            Key::Orphan(_) => adding.add(key),
        });
    });
    let (client, recorder) = (context.client(), context.recorder(Jobs::NAME));
    let control = PodControl::new(client.clone(), recorder.clone(), Arc::clone(&expectations));
    context.run(Arc::new(Jobs { client, control, recorder, jobs, pods, expectations, removals }), queue);
}

/// The Job that a Pod names as its controller, if it has the UID of the reference.
fn owner(pod: &Pod, jobs: &Informer<Job>) -> Option<Arc<Job>> {
    let reference = meta::controller_of(&pod.metadata).filter(|owner| owner.kind == "Job")?;
    let job = jobs.get(&ObjectKey::new(meta::namespace(&pod.metadata), &reference.name))?;
    (job.metadata.uid.as_deref() == Some(&reference.uid)).then_some(job)
}

/// Reports to the expectations what a change of a Pod fulfils.
fn observe(change: &Change<Pod>, jobs: &Informer<Job>, expectations: &Expectations, removals: &Removals) {
    let Some(pod) = change.latest() else { return };
    let Some(job) = owner(pod, jobs) else { return };
    let (key, uid) = (ObjectKey::from(&job.metadata), meta::uid(&pod.metadata));
    let deleting = |pod: Option<&Arc<Pod>>| pod.is_some_and(|pod| meta::is_deleting(&pod.metadata));
    if change.old.is_none() && change.new.is_some() {
        expectations.created(&key);
    }
    if change.new.is_none() || (deleting(change.new.as_ref()) && !deleting(change.old.as_ref())) {
        expectations.deleted(&key, uid);
    }
    if change.new.as_ref().is_none_or(|pod| !member::is_tracked(pod)) {
        removals.observed(&key, uid);
    }
    let ended_tracked = |pod: Option<&Arc<Pod>>| pod.is_some_and(|pod| pods::is_terminal(pod) && member::is_tracked(pod));
    match (ended_tracked(change.old.as_ref()), ended_tracked(change.new.as_ref())) {
        (false, true) => metrics::TERMINATED_PODS_TRACKED.count(["add"]),
        (true, false) => metrics::TERMINATED_PODS_TRACKED.count(["delete"]),
        _ => {}
    }
}

/// What a change of a Pod concerns: its Jobs before and after, or the Jobs that could adopt it, and the Pod itself if it has the
/// finalizer but no Job that will remove it.
fn touched(change: &Change<Pod>, jobs: &Informer<Job>) -> Vec<Key> {
    let mut keys: Vec<Key> = change.both().filter_map(|pod| owner(pod, jobs)).map(|job| Key::Job(ObjectKey::from(&job.metadata))).collect();
    let Some(pod) = &change.new else { return keys };
    let job = owner(pod, jobs);
    if member::is_tracked(pod) && job.as_ref().is_none_or(|job| jobs::finished(job).is_some()) {
        keys.push(Key::Orphan(ObjectKey::from(&pod.metadata)));
    }
    if meta::controller_of(&pod.metadata).is_none() {
        let candidates = jobs.in_namespace(meta::namespace(&pod.metadata)).into_iter();
        let adopters = candidates.filter(|job| meta::matches(&selector(job), pod.metadata.labels.as_ref()));
        keys.extend(adopters.map(|job| Key::Job(ObjectKey::from(&job.metadata))));
    }
    keys
}

fn selector(job: &Job) -> api_model::selector::Selector {
    meta::selector(&job.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default())
}

/// Whether the Job names another manager.
fn is_managed_elsewhere(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref()).is_some_and(|manager| manager != MANAGER)
}

impl Controller for Jobs {
    const NAME: &'static str = "job-controller";
    const WORKERS: usize = 5;
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        match key {
            Key::Job(key) => self.sync(key).await,
            Key::Orphan(key) => self.release(key).await.map(|()| Next::OnChange),
        }
    }
}

impl Jobs {
    async fn sync(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let Some(job) = self.jobs.get(key) else {
            self.expectations.forget(key);
            self.removals.forget(key);
            return Ok(Next::OnChange);
        };
        if jobs::finished(&job).is_some() || is_managed_elsewhere(&job) {
            return Ok(Next::OnChange);
        }
        let (began, mut action) = (Instant::now(), "reconciling");
        let result = self.pass(key, &job, &mut action).await;
        let labels = [member::completion_mode(&job), if result.is_ok() { "success" } else { "error" }, action];
        metrics::JOB_SYNCS.count(labels);
        metrics::JOB_SYNC_DURATION.observe(labels, began.elapsed().as_secs_f64());
        result
    }

    /// One pass over a Job that goes on. `action` becomes what was done to its Pods.
    async fn pass(&self, key: &ObjectKey, job: &Arc<Job>, action: &mut &'static str) -> Result<Next, Failure> {
        // Both are read before the Pods: what is fulfilled now cannot be missing from them.
        let (settled, untracked) = (self.expectations.satisfied(key), self.removals.expected(key));
        let pods = self.members(job).await?;
        let snapshot = Snapshot { job, pods: &pods, untracked: &untracked, settled, now: api_clock::now() };
        let counts = counts::counts(&snapshot);
        let plan = plan::plan(&snapshot, &counts);
        let may_change = settled && !meta::is_deleting(&job.metadata);
        *action = match &plan.manage {
            plan::Manage::Create(_) => "pods_created",
            plan::Manage::Delete(_) | plan::Manage::End => "pods_deleted",
            plan::Manage::Nothing => "reconciling",
        };
        let (managed, result) = self.manage(job, &counts, plan.manage).await;
        let managed = track::Managed { is_settled: may_change, ..managed };
        let end = match plan.end {
            // Pods that could not be deleted or are not in the cache would end uncounted.
            Some(end) => Some(end).filter(|_| settled && result.is_ok()),
            None if track::is_complete(&snapshot, &counts, &managed) => Some(track::completed(snapshot.now)),
            None => None,
        };
        self.track(job, track::track(&snapshot, &counts, &managed, end)).await?;
        result?;
        Ok(Next::OnChange.or_after(plan.look_again))
    }

    /// The Job's Pods, after adoption and release. Adopted Pods get the finalizer.
    async fn members(&self, job: &Job) -> Result<Vec<Arc<Pod>>, Failure> {
        let mut members = claim::claim(&self.client, claim::candidates(&self.pods, &job.metadata), job, &selector(job)).await?;
        if meta::is_deleting(&job.metadata) {
            return Ok(members);
        }
        for pod in &mut members {
            if pods::is_active(pod) && !member::is_tracked(pod) {
                let mut finalizers = pod.metadata.finalizers.clone().unwrap_or_default();
                finalizers.push(member::FINALIZER.to_owned());
                *pod = Arc::new(writes::patch(&self.client, pod.as_ref(), json!({"metadata": {"finalizers": finalizers}})).await?);
            }
        }
        Ok(members)
    }

    /// Removes the finalizer of a Pod whose Job is gone or has ended.
    async fn release(&self, key: &ObjectKey) -> Result<(), Failure> {
        let Some(pod) = self.pods.get(key).filter(|pod| member::is_tracked(pod)) else { return Ok(()) };
        if let Some(reference) = meta::controller_of(&pod.metadata).filter(|owner| owner.kind == "Job") {
            let job: Option<Job> = writes::get(&self.client, &ObjectKey::new(&key.namespace, &reference.name)).await?;
            let job = job.filter(|job| job.metadata.uid.as_deref() == Some(&reference.uid));
            if job.is_some_and(|job| jobs::finished(&job).is_none()) {
                return Ok(());
            }
        }
        self.untrack_one(&pod).await
    }
}
