//! What a Job needs next: whether it ends, and which Pods to create or delete.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec};
use k8s_openapi::api::core::v1::Pod;

use super::counts::{Counts, Snapshot};
use super::{member, policies};
use crate::{meta, pods};

/// The wait after the first failure, upstream's `DefaultJobPodFailureBackOff`; each further failure doubles it.
const BACKOFF_MIN: Duration = Duration::from_secs(10);
/// The longest wait, upstream's `MaxJobPodFailureBackOff`.
const BACKOFF_MAX: Duration = Duration::from_secs(10 * 60);
/// The highest number of Pods that one pass creates or deletes, upstream's `MaxPodCreateDeletePerSync`.
const PODS_MAX: usize = 500;

/// The writes to Pods.
#[derive(Debug, PartialEq)]
pub enum Manage {
    /// The number is right.
    Nothing,
    /// The Job ends: delete all active Pods. They keep their finalizers until the status counts them.
    End,
    /// These Pods are surplus. They do not count as failed.
    Delete(Vec<Arc<Pod>>),
    /// These Pods are missing.
    Create(Vec<Pod>),
}

/// The next writes.
#[derive(Debug)]
pub struct Plan {
    /// The condition with which the Job ends, `SuccessCriteriaMet` or `FailureTarget`.
    pub end: Option<JobCondition>,
    /// The writes to Pods.
    pub manage: Manage,
    /// When to look again although nothing changed.
    pub look_again: Option<Duration>,
}

/// A condition that has just become true.
pub fn condition(kind: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    let now = Some(meta::whole_seconds(now));
    JobCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: now.clone(),
        last_transition_time: now,
    }
}

/// A condition of the Job that is true.
pub fn stored<'a>(job: &'a Job, kind: &str) -> Option<&'a JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_deref().unwrap_or_default();
    conditions.iter().find(|condition| condition.type_ == kind && condition.status == "True")
}

/// The next writes.
pub fn plan(snapshot: &Snapshot<'_>, counts: &Counts) -> Plan {
    let default = JobSpec::default();
    let spec = snapshot.job.spec.as_ref().unwrap_or(&default);
    if let Some(end) = end(snapshot, counts, spec) {
        return Plan { end: Some(end), manage: Manage::End, look_again: None };
    }
    let (manage, wait) = if snapshot.settled && !meta::is_deleting(&snapshot.job.metadata) {
        manage(snapshot, counts, spec)
    } else {
        (Manage::Nothing, None)
    };
    let look_again = [wait, deadline_in(snapshot, spec)].into_iter().flatten().min();
    Plan { end: None, manage, look_again }
}

/// The condition with which the Job ends, before the number of completions is looked at.
fn end(snapshot: &Snapshot<'_>, counts: &Counts, spec: &JobSpec) -> Option<JobCondition> {
    let (job, now) = (snapshot.job, snapshot.now);
    if let Some(decided) = stored(job, "SuccessCriteriaMet").or_else(|| stored(job, "FailureTarget")) {
        return Some(decided.clone());
    }
    let failed = |reason: &str, message: &str| Some(condition("FailureTarget", reason, message, now));
    let by_policy = spec.pod_failure_policy.as_ref().and_then(|_| {
        let mut failed = snapshot.pods.iter().filter(|pod| member::is_failed(job, pod));
        failed.find_map(|pod| policies::of_failure(job, pod).fails_job)
    });
    if let Some(message) = by_policy {
        return failed("PodFailurePolicy", &message);
    }
    if counts.failed > spec.backoff_limit.unwrap_or(6) || restarts_exceed(snapshot, spec) {
        return failed("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    if deadline_in(snapshot, spec).is_some_and(|left| left.is_zero()) {
        return failed("DeadlineExceeded", "Job was active longer than specified deadline");
    }
    if let Some(indexes) = counts.failed_indexes.as_ref().map(super::indexes::Indexes::total) {
        if spec.max_failed_indexes.is_some_and(|max| indexes > max) {
            return failed("MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes");
        }
        if indexes > 0 && indexes.saturating_add(counts.succeeded) >= spec.completions.unwrap_or(0) {
            return failed("FailedIndexes", "Job has failed indexes");
        }
    }
    let message = policies::success(job, &counts.succeeded_indexes)?;
    Some(condition("SuccessCriteriaMet", "SuccessPolicy", &message, now))
}

/// Whether containers that restart in their Pods have done so too often.
fn restarts_exceed(snapshot: &Snapshot<'_>, spec: &JobSpec) -> bool {
    if spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) != Some("OnFailure") {
        return false;
    }
    let running = snapshot.pods.iter().filter(|pod| matches!(pods::phase(pod), "Running" | "Pending"));
    let restarts: i64 = running.flat_map(|pod| member::containers(pod)).map(|container| i64::from(container.restart_count)).sum();
    restarts > 0 && restarts >= i64::from(spec.backoff_limit.unwrap_or(6))
}

/// How long the Job may still be active; zero when it was active for too long.
fn deadline_in(snapshot: &Snapshot<'_>, spec: &JobSpec) -> Option<Duration> {
    let seconds = u64::try_from(spec.active_deadline_seconds?).ok()?;
    if member::is_suspended(snapshot.job) {
        return None;
    }
    // A Job that was suspended starts anew when it is resumed.
    let resumes = stored(snapshot.job, "Suspended").is_some();
    let start = meta::instant(snapshot.job.status.as_ref().and_then(|status| status.start_time.as_ref()));
    let start = start.filter(|_| !resumes).unwrap_or(snapshot.now);
    let active = Duration::try_from(snapshot.now.duration_since(start)).unwrap_or_default();
    Some(Duration::from_secs(seconds).saturating_sub(active))
}

/// The writes to Pods of a Job that goes on, and when creations may be tried again.
fn manage(snapshot: &Snapshot<'_>, counts: &Counts, spec: &JobSpec) -> (Manage, Option<Duration>) {
    let (job, active) = (snapshot.job, counts.active.len());
    if member::is_suspended(job) {
        let all = surplus(snapshot, counts, active);
        return (if all.is_empty() { Manage::Nothing } else { Manage::Delete(all) }, None);
    }
    let parallelism = count(spec.parallelism.unwrap_or(1));
    let wanted = match spec.completions {
        None if counts.succeeded > 0 => active,
        None => parallelism,
        Some(completions) => parallelism.min(count(completions.saturating_sub(counts.succeeded))),
    };
    let mut surplus = surplus(snapshot, counts, active.saturating_sub(wanted));
    surplus.truncate(PODS_MAX);
    if !surplus.is_empty() {
        return (Manage::Delete(surplus), None);
    }
    let terminating = if member::replaces_only_failed(job) { count(counts.terminating) } else { 0 };
    let missing = wanted.saturating_sub(active).saturating_sub(terminating).min(PODS_MAX);
    if missing == 0 {
        return (Manage::Nothing, None);
    }
    let wait = backoff(snapshot).filter(|_| member::limit_per_index(job).is_none());
    if wait.is_some() {
        return (Manage::Nothing, wait);
    }
    if !member::is_indexed(job) {
        return (Manage::Create(vec![member::new(job); missing]), None);
    }
    let (now, wait) = indexes_to_create(snapshot, counts, spec, missing);
    let pod = |index: &i32| member::new_indexed(job, *index, counts.to_replace.get(index).map(AsRef::as_ref));
    let created: Vec<Pod> = now.iter().map(pod).collect();
    if created.is_empty() { (Manage::Nothing, wait) } else { (Manage::Create(created), None) }
}

fn count(number: i32) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// The first indexes that need a Pod and may get one now; if all of them have to wait, the shortest wait.
fn indexes_to_create(snapshot: &Snapshot<'_>, counts: &Counts, spec: &JobSpec, missing: usize) -> (Vec<i32>, Option<Duration>) {
    let job = snapshot.job;
    let occupied = |pod: &&Arc<Pod>| pods::is_active(pod) || (member::replaces_only_failed(job) && pods::is_terminating(pod));
    let taken = snapshot.pods.iter().filter(occupied).filter_map(|pod| member::valid_index(job, pod));
    let mut done = counts.succeeded_indexes.with(taken);
    if let Some(failed) = &counts.failed_indexes {
        done = done.union(failed);
    }
    let wait = |index: &i32| counts.to_replace.get(index).and_then(|pod| wait_after(pod, snapshot.now));
    let pending: Vec<i32> = done.missing(spec.completions.unwrap_or(0)).take(missing).collect();
    let ready: Vec<i32> = pending.iter().copied().filter(|index| wait(index).is_none()).collect();
    let shortest = pending.iter().filter_map(wait).min();
    (ready, shortest)
}

/// How long the index of a failed Pod has to wait.
fn wait_after(failed: &Pod, now: Timestamp) -> Option<Duration> {
    remaining(member::Failures::before(failed).total().saturating_add(1), member::finished_at(failed), now)
}

/// How long creations have to wait because Pods failed after the last success. All Pods of the Job count, so that a restart of
/// the controller does not shorten the wait.
fn backoff(snapshot: &Snapshot<'_>) -> Option<Duration> {
    let succeeded = snapshot.pods.iter().filter(|pod| pods::phase(pod) == "Succeeded");
    let last_success = succeeded.map(|pod| member::finished_at(pod)).max();
    let failed = snapshot.pods.iter().filter(|pod| member::is_failed(snapshot.job, pod)).map(|pod| member::finished_at(pod));
    let since: Vec<Timestamp> = failed.filter(|at| last_success.is_none_or(|success| *at > success)).collect();
    let last = since.iter().max()?;
    remaining(i32::try_from(since.len()).unwrap_or(i32::MAX), *last, snapshot.now)
}

fn remaining(failures: i32, last: Timestamp, now: Timestamp) -> Option<Duration> {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(0).min(16);
    let wait = BACKOFF_MIN.saturating_mul(1 << doublings).min(BACKOFF_MAX);
    let passed = Duration::try_from(now.duration_since(last)).unwrap_or_default();
    wait.checked_sub(passed).filter(|left| !left.is_zero())
}

/// The active Pods to delete: those without a valid index and the second ones of an index, then others up to the number.
fn surplus(snapshot: &Snapshot<'_>, counts: &Counts, at_least: usize) -> Vec<Arc<Pod>> {
    let (job, now) = (snapshot.job, snapshot.now);
    let mut deleted = Vec::new();
    let mut left = Vec::new();
    if member::is_indexed(job) {
        let mut by_index: BTreeMap<i32, Vec<Arc<Pod>>> = BTreeMap::new();
        for pod in &counts.active {
            match member::valid_index(job, pod) {
                Some(index) => by_index.entry(index).or_default().push(Arc::clone(pod)),
                None => deleted.push(Arc::clone(pod)),
            }
        }
        for same in by_index.into_values() {
            let mut order = if same.len() > 1 { pods::deletion_order(same, &[], now) } else { same };
            left.extend(order.pop());
            deleted.append(&mut order);
        }
    } else {
        left.clone_from(&counts.active);
    }
    let more = at_least.saturating_sub(deleted.len());
    if more > 0 {
        deleted.extend(pods::deletion_order(left, &[], now).into_iter().take(more));
    }
    deleted
}

#[cfg(test)]
mod tests;
