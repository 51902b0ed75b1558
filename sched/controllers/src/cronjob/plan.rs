//! What a CronJob needs: the finished Jobs to delete, the status that follows from its Jobs, and whether a Job is to be started
//! now.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::due::{self, Timetable};
use crate::note::{Note, normal, warning};
use crate::{jobs, meta};

/// The annotation with the time for which a Job was created.
const SCHEDULED_AT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// What to do now.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing before the CronJob changes.
    Idle,
    /// Nothing before this time has passed.
    Wait(Option<Duration>),
    /// Start the Job of this time.
    Start(Timestamp),
}

/// The finished Jobs beyond the history limits, oldest first. Those that are being deleted already count.
pub fn surplus(cron_job: &CronJob, jobs: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let spec = &cron_job.spec;
    let limits = [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)];
    let mut surplus = Vec::new();
    for (condition, limit) in limits {
        let Some(limit) = limit else { continue };
        let of_condition = |job: &&Arc<Job>| jobs::finished(job).is_some_and(|finished| finished.type_ == condition);
        let mut finished: Vec<Arc<Job>> = jobs.iter().filter(of_condition).cloned().collect();
        finished.sort_by_cached_key(|job| {
            let start = job.status.as_ref().and_then(|status| meta::instant(status.start_time.as_ref()));
            (start.is_none(), start, job.metadata.name.clone())
        });
        finished.truncate(finished.len().saturating_sub(usize::try_from(limit).unwrap_or(0)));
        surplus.extend(finished.into_iter().filter(|job| !meta::is_deleting(&job.metadata)));
    }
    surplus
}

/// The unfinished Jobs that the status does not list.
pub fn unlisted<'a>(cron_job: &CronJob, jobs: &'a [Arc<Job>]) -> Vec<&'a Arc<Job>> {
    let active: HashSet<&str> = active(cron_job).map(uid).collect();
    jobs.iter().filter(|job| jobs::finished(job).is_none() && !active.contains(meta::uid(&job.metadata))).collect()
}

/// The listed Jobs that are not among `jobs`.
pub fn absent(cron_job: &CronJob, jobs: &[Arc<Job>]) -> Vec<ObjectReference> {
    let uids: HashSet<&str> = jobs.iter().map(|job| meta::uid(&job.metadata)).collect();
    active(cron_job).filter(|job| !uids.contains(uid(job))).cloned().collect()
}

/// Brings the status up to date with the Jobs, and returns the events. `missing` are the listed Jobs that do not exist.
pub fn observe(cron_job: &mut CronJob, jobs: &[Arc<Job>], missing: &[ObjectReference]) -> Vec<Note> {
    let mut notes = Vec::new();
    let unexpected = |job: &Arc<Job>| {
        let name = meta::name(&job.metadata);
        warning("UnexpectedJob", format!("Saw a job that the controller did not create or forgot: {name}"))
    };
    notes.extend(unlisted(cron_job, jobs).into_iter().map(unexpected));
    let status = cron_job.status.get_or_insert_default();
    for (job, condition) in jobs.iter().filter_map(|job| Some((job, jobs::finished(job)?))) {
        if remove(status, meta::uid(&job.metadata)) {
            let message = format!("Saw completed job: {}, condition: {}", meta::name(&job.metadata), condition.type_);
            notes.push(normal("SawCompletedJob", message));
        }
        let completed = job.status.as_ref().and_then(|status| status.completion_time.clone());
        if jobs::is_complete(job) && meta::instant(completed.as_ref()) > meta::instant(status.last_successful_time.as_ref()) {
            status.last_successful_time = completed;
        }
    }
    for job in missing {
        if remove(status, uid(job)) {
            notes.push(normal("MissingJob", format!("Active job went missing: {}", job.name.as_deref().unwrap_or_default())));
        }
    }
    notes
}

/// Whether a Job is to be started at this time, with the events. `local` is the time zone of CronJobs without one.
pub fn decide(cron_job: &CronJob, now: Timestamp, local: &TimeZone) -> (Decision, Vec<Note>) {
    let mut notes = Vec::new();
    let spec = &cron_job.spec;
    if meta::is_deleting(&cron_job.metadata) {
        return (Decision::Idle, notes);
    }
    let zone = match due::zone(spec, local) {
        Ok(zone) => zone,
        Err(note) => return (Decision::Idle, vec![note]),
    };
    if spec.suspend == Some(true) {
        return (Decision::Idle, notes);
    }
    if spec.schedule.contains("TZ") {
        let more = "is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details";
        notes.push(warning("UnsupportedSchedule", format!("CRON_TZ or TZ used in schedule {:?} {more}", spec.schedule)));
    }
    let timetable = match Timetable::new(spec, zone) {
        Ok(timetable) => timetable,
        Err(note) => {
            notes.push(note);
            return (Decision::Idle, notes);
        }
    };
    let due = match timetable.due(due::earliest_start(cron_job, now), now) {
        Ok(due) => due,
        Err(problem) => {
            notes.push(warning("InvalidSchedule", format!("invalid schedule: {} : {problem}", spec.schedule)));
            return (Decision::Idle, notes);
        }
    };
    let wait = || Decision::Wait(timetable.wait(cron_job, now));
    let Some(at) = due.newest else {
        notes.extend(timetable.too_late(cron_job, now));
        return (wait(), notes);
    };
    if due.is_too_many() {
        let advice = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        notes.push(warning("TooManyMissedTimes", advice));
    }
    if is_started(cron_job, at) {
        return (wait(), notes);
    }
    if spec.concurrency_policy.as_deref() == Some("Forbid") && active(cron_job).next().is_some() {
        let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
        notes.push(normal("JobAlreadyActive", message));
        return (wait(), notes);
    }
    (Decision::Start(at), notes)
}

/// How long until the next pass after a Job was started.
pub fn wait(cron_job: &CronJob, now: Timestamp, local: &TimeZone) -> Option<Duration> {
    let spec = &cron_job.spec;
    Timetable::new(spec, due::zone(spec, local).ok()?).ok()?.wait(cron_job, now)
}

/// The listed Jobs.
pub fn active(cron_job: &CronJob) -> impl Iterator<Item = &ObjectReference> {
    cron_job.status.iter().flat_map(|status| status.active.iter().flatten())
}

/// Whether the Job of this time was started already.
fn is_started(cron_job: &CronJob, at: Timestamp) -> bool {
    let name = job_name(cron_job, at);
    let last = cron_job.status.as_ref().and_then(|status| meta::instant(status.last_schedule_time.as_ref()));
    last == Some(at) || active(cron_job).any(|job| job.name.as_deref() == Some(&name))
}

/// Lists a Job that was started for this time.
pub fn started(cron_job: &mut CronJob, job: ObjectReference, at: Timestamp) {
    let status = cron_job.status.get_or_insert_default();
    status.active.get_or_insert_default().push(job);
    status.last_schedule_time = Some(meta::whole_seconds(at));
}

/// Removes a Job from the list. Returns whether it was in the list.
pub fn remove(status: &mut CronJobStatus, job: &str) -> bool {
    let Some(active) = &mut status.active else { return false };
    let before = active.len();
    active.retain(|listed| uid(listed) != job);
    let removed = active.len() < before;
    status.active.take_if(|active| active.is_empty());
    removed
}

/// The Job for a time. Its name follows from the time, so that it cannot be created twice.
pub fn job(cron_job: &CronJob, at: Timestamp) -> Job {
    let spec = cron_job.spec.clone();
    let zone = spec.time_zone.as_deref().and_then(api_model::cron::time_zone).unwrap_or(TimeZone::UTC);
    let template = spec.job_template.metadata.unwrap_or_default();
    let mut annotations = template.annotations.unwrap_or_default();
    annotations.insert(SCHEDULED_AT.to_owned(), rfc3339(at, &zone));
    Job {
        metadata: ObjectMeta {
            name: Some(job_name(cron_job, at)),
            namespace: cron_job.metadata.namespace.clone(),
            labels: template.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![meta::controller_reference(cron_job)]),
            ..ObjectMeta::default()
        },
        spec: spec.job_template.spec,
        status: None,
    }
}

fn job_name(cron_job: &CronJob, at: Timestamp) -> String {
    format!("{}-{}", meta::name(&cron_job.metadata), at.as_second() / 60)
}

/// As Go formats RFC 3339: an offset of zero is `Z`.
fn rfc3339(at: Timestamp, zone: &TimeZone) -> String {
    let zoned = at.to_zoned(zone.clone());
    let format = if zoned.offset().is_zero() { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%:z" };
    zoned.strftime(format).to_string()
}

fn uid(job: &ObjectReference) -> &str {
    job.uid.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
