//! The status of a Job, and how the end of each Pod is counted exactly once.
//!
//! A Pod that ended is first noted by UID in `uncountedTerminatedPods`. Then its finalizer is removed. Then the UID moves to the
//! counters. The status is written before the removal and after it, so a kill at any point leads to the same counts. A Pod of
//! an indexed Job that succeeded needs no note: its index in `completedIndexes` is enough.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;

use super::counts::{Counts, Snapshot};
use super::plan::condition;
use super::{member, policies};
use crate::{meta, pods};

/// The most Pods that the status notes at a time, upstream's `MaxUncountedPods`: their UIDs have less than 20 KB.
const NOTED_MAX: usize = 500;

/// The Pods after the writes of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Managed {
    /// Pods that have not ended and are not being deleted.
    pub active: i32,
    /// How many of them are ready.
    pub ready: i32,
    /// Pods that are being deleted and have not ended.
    pub terminating: i32,
    /// Whether the plan was made from a complete view and may change the condition `Suspended`.
    pub is_settled: bool,
}

/// An event about the Job: its reason, which is `Resumed` or `Suspended`, and its message.
pub type Event = (&'static str, &'static str);

/// The status to write, and what comes after.
#[derive(Debug)]
pub struct Tracking {
    /// The status to write first.
    pub status: JobStatus,
    /// The Pods whose finalizer is to be removed then.
    pub untrack: Vec<Arc<Pod>>,
    /// UIDs of Pods that have the finalizer.
    pub tracked: HashSet<String>,
    /// The condition of the end, `Complete` or `Failed`, once every Pod is counted.
    pub end: Option<JobCondition>,
    /// What the status newly says.
    pub event: Option<Event>,
}

/// Whether so many Pods succeeded that the Job is complete.
pub fn is_complete(snapshot: &Snapshot<'_>, counts: &Counts, managed: &Managed) -> bool {
    let completions = snapshot.job.spec.as_ref().and_then(|spec| spec.completions);
    let enough = completions.map_or(counts.succeeded > 0, |completions| counts.succeeded >= completions);
    enough && managed.active == 0
}

/// The condition of a Job that has reached its completions.
pub fn completed(now: Timestamp) -> JobCondition {
    condition("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods", now)
}

/// The status to write, and the Pods that need their finalizer no more. `end` is the condition with which the Job ends.
pub fn track(snapshot: &Snapshot<'_>, counts: &Counts, managed: &Managed, end: Option<JobCondition>) -> Tracking {
    let mut status = snapshot.status();
    let event = begin(snapshot, managed, &mut status, end.is_some());
    status.active = Some(managed.active).filter(|count| *count != 0);
    (status.ready, status.terminating) = (Some(managed.ready), Some(managed.terminating));
    let tracked = snapshot.pods.iter().filter(|pod| snapshot.is_tracked(pod)).map(|pod| meta::uid(&pod.metadata).to_owned()).collect();
    count_untracked(&mut status, &tracked);
    let (untrack, succeeded, is_whole) = note(snapshot, counts, end.as_ref(), &mut status);
    if member::is_indexed(snapshot.job) {
        let indexes = counts.stored_indexes.with(succeeded);
        status.succeeded = Some(indexes.total()).filter(|count| *count != 0);
        status.completed_indexes = Some(indexes.to_string()).filter(|text| !text.is_empty());
        status.failed_indexes = counts.failed_indexes.as_ref().map(ToString::to_string);
    }
    let end = end.map(|decided| {
        let kind = if decided.type_ == "FailureTarget" { "Failed" } else { "Complete" };
        let (reason, message) = (decided.reason.clone().unwrap_or_default(), decided.message.clone().unwrap_or_default());
        set_condition(&mut status, decided);
        condition(kind, &reason, &message, snapshot.now)
    });
    Tracking { status, untrack, tracked, end: end.filter(|_| is_whole), event }
}

/// Writes the start, and whether the Job is suspended.
fn begin(snapshot: &Snapshot<'_>, managed: &Managed, status: &mut JobStatus, ends: bool) -> Option<Event> {
    let suspended = member::is_suspended(snapshot.job);
    let now = Some(meta::whole_seconds(snapshot.now));
    if status.start_time.is_none() && !suspended {
        status.start_time.clone_from(&now);
    }
    status.uncounted_terminated_pods.get_or_insert_default();
    if !managed.is_settled || ends {
        return None;
    }
    let stored = status.conditions.iter().flatten().find(|condition| condition.type_ == "Suspended");
    let was_suspended = stored.is_some_and(|condition| condition.status == "True");
    match (was_suspended, suspended) {
        (false, true) => {
            set_condition(status, condition("Suspended", "JobSuspended", "Job suspended", snapshot.now));
            Some(("Suspended", "Job suspended"))
        }
        (true, false) => {
            let resumed = condition("Suspended", "JobResumed", "Job resumed", snapshot.now);
            set_condition(status, JobCondition { status: "False".to_owned(), ..resumed });
            // The deadline counts from the resumption.
            status.start_time = now;
            Some(("Resumed", "Job resumed"))
        }
        _ => None,
    }
}

/// Adds a condition, or changes the one of its type.
fn set_condition(status: &mut JobStatus, wanted: JobCondition) {
    let conditions = status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|condition| condition.type_ == wanted.type_) {
        None => conditions.push(wanted),
        Some(same) if (&same.status, &same.reason, &same.message) == (&wanted.status, &wanted.reason, &wanted.message) => {}
        Some(other) => *other = wanted,
    }
}

/// Notes Pods that ended. Returns the Pods whose finalizer is to be removed, the indexes that newly succeeded, and whether that
/// is all of them.
fn note(snapshot: &Snapshot<'_>, counts: &Counts, end: Option<&JobCondition>, status: &mut JobStatus) -> (Vec<Arc<Pod>>, Vec<i32>, bool) {
    let (job, indexed) = (snapshot.job, member::is_indexed(snapshot.job));
    let mut sorted: Vec<&Arc<Pod>> = snapshot.pods.iter().filter(|pod| snapshot.is_tracked(pod)).collect();
    sorted.sort_by_key(|pod| member::index(pod));
    let noted = status.uncounted_terminated_pods.get_or_insert_default();
    let (mut succeeded, mut failed) = (noted.succeeded.take().unwrap_or_default(), noted.failed.take().unwrap_or_default());
    let (known_succeeded, known_failed): (HashSet<String>, HashSet<String>) =
        (succeeded.iter().cloned().collect(), failed.iter().cloned().collect());
    let (mut untrack, mut indexes, mut is_whole) = (Vec::new(), Vec::new(), true);
    // When the Job fails, Pods that have not ended count as failed.
    let job_fails = end.is_some_and(|end| end.type_ == "FailureTarget");
    for pod in sorted {
        let (uid, is_failed) = (meta::uid(&pod.metadata).to_owned(), member::is_failed(job, pod));
        if !may_untrack(snapshot, counts, end.is_some(), pod, is_failed) {
            continue;
        }
        untrack.push(Arc::clone(pod));
        if pods::phase(pod) == "Succeeded" && !known_failed.contains(&uid) {
            if indexed {
                indexes.extend(member::valid_index(job, pod).filter(|index| !counts.stored_indexes.contains(*index)));
            } else if !known_succeeded.contains(&uid) {
                succeeded.push(uid);
            }
        } else if (is_failed || job_fails)
            && !known_failed.contains(&uid)
            && snapshot.is_valid(pod)
            && policies::of_failure(job, pod).counts
        {
            failed.push(uid);
        }
        if indexes.len() + succeeded.len() + failed.len() >= NOTED_MAX {
            is_whole = false;
            break;
        }
    }
    let list = |uids: Vec<String>| (!uids.is_empty()).then_some(uids);
    status.uncounted_terminated_pods = Some(UncountedTerminatedPods { succeeded: list(succeeded), failed: list(failed) });
    (untrack, indexes, is_whole)
}

/// Whether the finalizer may be removed: the Pod succeeded or failed, or the Job ends. A failed Pod of an index with a limit
/// keeps its finalizer until another Pod has the count of its failures.
fn may_untrack(snapshot: &Snapshot<'_>, counts: &Counts, ends: bool, pod: &Pod, is_failed: bool) -> bool {
    if ends || meta::is_deleting(&snapshot.job.metadata) || pods::phase(pod) == "Succeeded" {
        return true;
    }
    let waits = member::index(pod).and_then(|index| counts.to_replace.get(&index));
    is_failed && waits.is_none_or(|waits| waits.metadata.uid != pod.metadata.uid)
}

/// Moves the UIDs of Pods without the finalizer to the counters.
pub fn count_untracked(status: &mut JobStatus, tracked: &HashSet<String>) {
    let noted = status.uncounted_terminated_pods.get_or_insert_default();
    let move_to = |uids: &mut Option<Vec<String>>, counter: &mut Option<i32>| {
        let before = uids.as_ref().map_or(0, Vec::len);
        let left: Vec<String> = uids.take().into_iter().flatten().filter(|uid| tracked.contains(uid)).collect();
        let moved = i32::try_from(before - left.len()).unwrap_or(i32::MAX);
        if moved > 0 {
            *counter = Some(counter.unwrap_or(0).saturating_add(moved));
        }
        *uids = (!left.is_empty()).then_some(left);
    };
    move_to(&mut noted.succeeded, &mut status.succeeded);
    move_to(&mut noted.failed, &mut status.failed);
}

/// Adds the condition of the end, once every Pod is counted and gone; returns whether it is.
pub fn finish(status: &mut JobStatus, end: JobCondition) -> bool {
    let noted = status.uncounted_terminated_pods.as_ref();
    let is_counted = noted.is_none_or(|noted| noted.succeeded.is_none() && noted.failed.is_none());
    if !is_counted || status.terminating.unwrap_or(0) > 0 {
        return false;
    }
    if end.type_ == "Complete" {
        status.completion_time.clone_from(&end.last_transition_time);
    }
    set_condition(status, end);
    true
}
