//! CronJob: starts a Job at each time of a schedule.
//!
//! Watches CronJobs and Jobs. Creates the Job of a time under a name that follows from the time, deletes its finished Jobs beyond
//! the history limits, deletes its running Jobs under the policy `Replace`, and writes CronJob status. Never touches a Job that it
//! does not own. A crash or another leader between creation and status meets the Job under its name and lists it.

mod due;
mod plan;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api_client::events::{Recorder, reference};
use api_client::informer::{BY_CONTROLLER, Change, Informer, ObjectKey};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::DeleteParams;
use serde_json::json;

use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::note::{self, Note};
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, metrics, writes};
use plan::Decision;

/// The controller.
pub struct CronJobs {
    client: kube::Client,
    recorder: Recorder,
    cron_jobs: Informer<CronJob>,
    jobs: Informer<Job>,
    /// The time zone of CronJobs without one.
    local: TimeZone,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("cronjob"));
    let local = context.config.time_zone.clone();
    let cron_jobs = context.informer::<CronJob>();
    let (changed, zone) = (Arc::clone(&queue), local.clone());
    context.on_change(&cron_jobs, move |change| {
        if let Some(cron_job) = &change.new {
            changed.add_after(ObjectKey::from(&cron_job.metadata), delay(change, &zone));
        }
    });
    let owners = cron_jobs.clone();
    let jobs = context.feed(&queue, move |change: &Change<Job>| change.both().filter_map(|job| owner(job, &owners)).collect());
    let controller = CronJobs { client: context.client(), recorder: context.recorder(CronJobs::NAME), cron_jobs, jobs, local };
    context.run(Arc::new(controller), queue);
}

/// How long after a change the pass is. As upstream, a new schedule takes effect with its next time: the times of the new
/// schedule that have passed since the last Job are not made up for.
fn delay(change: &Change<CronJob>, local: &TimeZone) -> Duration {
    let schedule = |cron_job: &Arc<CronJob>| (cron_job.spec.schedule.clone(), cron_job.spec.time_zone.clone());
    match (&change.old, &change.new) {
        (Some(old), Some(new)) if schedule(old) != schedule(new) => plan::wait(new, api_clock::now(), local).unwrap_or_default(),
        _ => Duration::ZERO,
    }
}

/// The CronJob that a Job names as its controller, if it has the UID of the reference.
fn owner(job: &Job, cron_jobs: &Informer<CronJob>) -> Option<ObjectKey> {
    let reference = meta::controller_of(&job.metadata).filter(|owner| owner.kind == "CronJob")?;
    let key = ObjectKey::new(meta::namespace(&job.metadata), &reference.name);
    cron_jobs.get(&key).is_some_and(|cron_job| cron_job.metadata.uid.as_deref() == Some(&reference.uid)).then_some(key)
}

impl Controller for CronJobs {
    const NAME: &'static str = "cronjob-controller";
    const WORKERS: usize = 5;
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        self.pass(key, api_clock::now()).await
    }
}

impl CronJobs {
    async fn pass(&self, key: &ObjectKey, now: Timestamp) -> Result<Next, Failure> {
        let Some(cached) = self.cron_jobs.get(key) else { return Ok(Next::OnChange) };
        let jobs = self.jobs.indexed(BY_CONTROLLER, meta::uid(&cached.metadata));
        let Some(read) = self.newest(cached, &jobs).await? else { return Ok(Next::OnChange) };
        let mut cron_job = CronJob::clone(&read);
        self.clean_up(&mut cron_job, &jobs).await;
        let next = self.sync(&mut cron_job, &jobs, now).await;
        self.write_status(&read, &cron_job).await?;
        next
    }

    /// The CronJob in the cache, or in the store while a running Job is missing in its status: the Jobs may be newer than the
    /// CronJob. `None` if the CronJob is gone.
    async fn newest(&self, cached: Arc<CronJob>, jobs: &[Arc<Job>]) -> Result<Option<Arc<CronJob>>, Failure> {
        if plan::unlisted(&cached, jobs).is_empty() {
            return Ok(Some(cached));
        }
        let fresh: Option<CronJob> = writes::get(&self.client, &ObjectKey::from(&cached.metadata)).await?;
        Ok(fresh.filter(|fresh| fresh.metadata.uid == cached.metadata.uid).map(Arc::new))
    }

    /// Deletes finished Jobs beyond the history limits. As upstream, a failure waits for the next pass.
    async fn clean_up(&self, cron_job: &mut CronJob, jobs: &[Arc<Job>]) {
        for job in plan::surplus(cron_job, jobs) {
            if let Err(failure) = self.delete(cron_job, &job).await {
                tracing::warn!(job = %ObjectKey::from(&job.metadata), error = failure.chain(), "finished job not deleted");
            }
        }
    }

    /// Changes `cron_job` to the status that it is to have.
    async fn sync(&self, cron_job: &mut CronJob, jobs: &[Arc<Job>], now: Timestamp) -> Result<Next, Failure> {
        let mut missing = Vec::new();
        for listed in plan::absent(cron_job, jobs) {
            // The cache may lag behind the creation.
            if self.get(cron_job, &listed).await?.is_none_or(|job| job.metadata.uid != listed.uid) {
                missing.push(listed);
            }
        }
        let notes = plan::observe(cron_job, jobs, &missing);
        self.record(cron_job, notes);
        let (decision, notes) = plan::decide(cron_job, now, &self.local);
        self.record(cron_job, notes);
        match decision {
            Decision::Idle => Ok(Next::OnChange),
            Decision::Wait(wait) => Ok(Next::OnChange.or_after(wait)),
            Decision::Start(at) => {
                if cron_job.spec.concurrency_policy.as_deref() == Some("Replace") {
                    self.replace(cron_job).await?;
                }
                self.start(cron_job, at).await?;
                Ok(Next::OnChange.or_after(plan::wait(cron_job, now, &self.local)))
            }
        }
    }

    /// Deletes the running Jobs.
    async fn replace(&self, cron_job: &mut CronJob) -> Result<(), Failure> {
        let active: Vec<ObjectReference> = plan::active(cron_job).cloned().collect();
        for listed in active {
            let job = self.get(cron_job, &listed).await;
            if let Err(failure) = &job {
                self.recorder.warning(&reference(cron_job), "FailedGet", format!("Get job: {}", failure.message()));
            }
            match job?.filter(|job| job.metadata.uid == listed.uid) {
                Some(job) => self.delete(cron_job, &job).await?,
                None => drop(plan::remove(cron_job.status.get_or_insert_default(), listed.uid.as_deref().unwrap_or_default())),
            }
        }
        Ok(())
    }

    /// Creates the Job of a time and lists it. A Job of that name that the CronJob owns was created before the status could be
    /// written.
    async fn start(&self, cron_job: &mut CronJob, at: Timestamp) -> Result<(), Failure> {
        let wanted = plan::job(cron_job, at);
        let job = match writes::create(&self.client, &wanted).await {
            Ok(job) => {
                if let Some(created) = meta::instant(job.metadata.creation_timestamp.as_ref()) {
                    metrics::CRONJOB_SKEW.observe([], metrics::seconds(created.duration_since(at)));
                }
                self.recorder.normal(&reference(cron_job), "SuccessfulCreate", format!("Created job {}", meta::name(&job.metadata)));
                job
            }
            Err(failure) if failure.is_namespace_terminating() => return Ok(()),
            Err(failure) if failure.is_already_exists() => {
                let existing: Option<Job> = writes::get(&self.client, &ObjectKey::from(&wanted.metadata)).await?;
                // Deleted since: the next pass creates the Job.
                let Some(existing) = existing else { return Err(failure) };
                // As upstream, a Job of somebody else counts as the Job of this time.
                if meta::controller_uid(&existing.metadata) != meta::uid(&cron_job.metadata) {
                    return Ok(());
                }
                existing
            }
            Err(failure) => {
                self.recorder.warning(&reference(cron_job), "FailedCreate", format!("Error creating job: {}", failure.message()));
                return Err(failure);
            }
        };
        plan::started(cron_job, reference(&job), at);
        Ok(())
    }

    /// Deletes a Job, and its Pods after it, and removes the Job from the status.
    async fn delete(&self, cron_job: &mut CronJob, job: &Job) -> Result<(), Failure> {
        match writes::delete(&self.client, job, DeleteParams::background()).await {
            Ok(()) => {
                plan::remove(cron_job.status.get_or_insert_default(), meta::uid(&job.metadata));
                self.recorder.normal(&reference(cron_job), "SuccessfulDelete", format!("Deleted job {}", meta::name(&job.metadata)));
                Ok(())
            }
            Err(failure) => {
                self.recorder.warning(&reference(cron_job), "FailedDelete", format!("Deleted job: {}", failure.message()));
                Err(failure)
            }
        }
    }

    /// Writes the status if it differs from the one that was read, and waits until the cache has it: a pass over an older status
    /// could start a Job a second time that is gone already.
    async fn write_status(&self, read: &CronJob, new: &CronJob) -> Result<(), Failure> {
        let of = |cron_job: &CronJob| json!(cron_job.status.clone().unwrap_or_default());
        let change = meta::merge_patch(&of(read), &of(new));
        if change.as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok(());
        }
        let written = writes::patch_status(&self.client, read, change).await?;
        writes::delivered(&self.cron_jobs, &written).await
    }

    /// A listed Job, as it is stored now.
    async fn get(&self, cron_job: &CronJob, job: &ObjectReference) -> Result<Option<Job>, Failure> {
        let key = ObjectKey::new(meta::namespace(&cron_job.metadata), job.name.clone().unwrap_or_default());
        writes::get(&self.client, &key).await
    }

    fn record(&self, cron_job: &CronJob, notes: Vec<Note>) {
        note::record(&self.recorder, &reference(cron_job), notes);
    }
}
