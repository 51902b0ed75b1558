//! A Deployment's status: counts, and the conditions Available, Progressing and ReplicaFailure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet, ReplicaSetCondition};

use super::fence::{self, size, wanted};
use super::plan::Sets;
use crate::meta;

/// A Deployment does not progress because its ReplicaSet could not be created.
pub const REPLICA_SET_CREATE_ERROR: &str = "ReplicaSetCreateError";
const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const REPLICA_FAILURE: &str = "ReplicaFailure";
const NEW_REPLICA_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
const PROGRESS_DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";

/// A condition to be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    kind: &'static str,
    status: &'static str,
    reason: String,
    message: String,
}

impl Condition {
    fn new(kind: &'static str, status: &'static str, reason: &str, message: impl Into<String>) -> Self {
        Self { kind, status, reason: reason.to_owned(), message: message.into() }
    }
}

fn find<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_.as_deref() == Some(kind))
}

fn remove(status: &mut DeploymentStatus, kind: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_.as_deref() != Some(kind));
    }
}

/// Sets a condition. A condition with the same status and reason stays as it is, times included; one with the same status keeps
/// its transition time.
pub fn set_condition(status: &mut DeploymentStatus, condition: Condition, now: Timestamp) {
    let current = find(status, condition.kind).cloned();
    let same_status = current.as_ref().filter(|current| current.status.as_deref() == Some(condition.status));
    if same_status.is_some_and(|current| current.reason.as_deref() == Some(&condition.reason)) {
        return;
    }
    let transition = same_status.and_then(|current| current.last_transition_time.clone());
    push(status, condition, transition, now);
}

fn push(status: &mut DeploymentStatus, condition: Condition, transition: Option<meta::Moment>, now: Timestamp) {
    remove(status, condition.kind);
    let updated = meta::whole_seconds(now);
    status.conditions.get_or_insert_default().push(DeploymentCondition {
        type_: Some(condition.kind.to_owned()),
        status: Some(condition.status.to_owned()),
        reason: Some(condition.reason),
        message: Some(condition.message),
        last_transition_time: transition.or_else(|| Some(updated.clone())),
        last_update_time: Some(updated),
    });
}

fn has_deadline(deployment: &Deployment) -> bool {
    deployment.spec.progress_deadline_seconds.is_some_and(|seconds| seconds != i32::MAX)
}

/// The counts and Available; other conditions as they were.
pub fn counted(deployment: &Deployment, sets: &Sets, now: Timestamp) -> DeploymentStatus {
    let before = deployment.status.clone().unwrap_or_default();
    let sum = |count: &dyn Fn(&ReplicaSet) -> i32| -> i32 { sets.all().map(|set| count(set)).fold(0, i32::saturating_add) };
    let of_status = |set: &ReplicaSet| set.status.clone().unwrap_or_default();
    let available = sum(&fence::available);
    let some = |count: i32| (count != 0).then_some(count);
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: some(sum(&|set| of_status(set).replicas)),
        updated_replicas: some(sets.new.as_ref().map_or(0, |set| of_status(set).replicas)),
        ready_replicas: some(sum(&|set| of_status(set).ready_replicas.unwrap_or(0))),
        available_replicas: some(available),
        unavailable_replicas: some(sum(&size).saturating_sub(available).max(0)),
        terminating_replicas: terminating(sets),
        collision_count: before.collision_count,
        conditions: before.conditions,
    };
    let condition = if available >= wanted(deployment).saturating_sub(fence::max_unavailable(deployment)) {
        Condition::new(AVAILABLE, "True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        Condition::new(AVAILABLE, "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set_condition(&mut status, condition, now);
    status
}

/// The Pods that are being deleted; unknown when a ReplicaSet that was reconciled does not say its number.
fn terminating(sets: &Sets) -> Option<i32> {
    let mut sum = 0_i32;
    for status in sets.all().filter_map(|set| set.status.as_ref()) {
        match (status.terminating_replicas, status.observed_generation) {
            (Some(count), _) => sum = sum.saturating_add(count),
            (None, None | Some(0)) => {}
            (None, Some(_)) => return None,
        }
    }
    Some(sum)
}

/// Whether all wanted replicas exist, are updated and available, and no others exist.
pub fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = Some(wanted(deployment)).filter(|count| *count != 0);
    status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
        && status.observed_generation >= deployment.metadata.generation
}

/// Whether the rollout progressed since the last written status.
pub fn is_progressing(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let before = deployment.status.clone().unwrap_or_default();
    let old = |status: &DeploymentStatus| status.replicas.unwrap_or(0).saturating_sub(status.updated_replicas.unwrap_or(0));
    status.updated_replicas > before.updated_replicas
        || old(status) < old(&before)
        || status.ready_replicas > before.ready_replicas
        || status.available_replicas > before.available_replicas
}

/// The time until which a rollout may be without progress; `None` when it has no deadline.
fn deadline_at(deployment: &Deployment) -> Option<Timestamp> {
    let condition = find(deployment.status.as_ref()?, PROGRESSING)?;
    let seconds = deployment.spec.progress_deadline_seconds?;
    meta::instant(condition.last_update_time.as_ref())?.checked_add(SignedDuration::from_secs(seconds.into())).ok()
}

/// How long a rollout may still be without progress; `None` when it has no deadline.
fn time_left(deployment: &Deployment, now: Timestamp) -> Option<Duration> {
    deadline_at(deployment).map(|deadline| Duration::try_from(deadline.duration_since(now)).unwrap_or_default())
}

fn reason_before(deployment: &Deployment) -> Option<&str> {
    find(deployment.status.as_ref()?, PROGRESSING)?.reason.as_deref()
}

/// Whether more than the deadline has passed since the last progress.
fn is_timed_out(deployment: &Deployment, now: Timestamp) -> bool {
    match reason_before(deployment) {
        None | Some(NEW_REPLICA_SET_AVAILABLE) => false,
        Some(PROGRESS_DEADLINE_EXCEEDED) => true,
        Some(_) => has_deadline(deployment) && deadline_at(deployment).is_some_and(|deadline| deadline < now),
    }
}

/// The status during a rollout, and when its deadline must be checked. `creating` is the name of the ReplicaSet that this pass
/// creates.
pub fn of_rollout(deployment: &Deployment, sets: &Sets, creating: Option<&str>, now: Timestamp) -> (DeploymentStatus, Option<Duration>) {
    let mut status = counted(deployment, sets, now);
    if !has_deadline(deployment) {
        remove(&mut status, PROGRESSING);
        set_replica_failure(&mut status, sets);
        return (status, None);
    }
    judge(deployment, &mut status, sets, creating, now);
    set_replica_failure(&mut status, sets);
    let reason = find(&status, PROGRESSING).and_then(|condition| condition.reason.as_deref());
    let timed = !matches!(reason, None | Some(NEW_REPLICA_SET_AVAILABLE | PROGRESS_DEADLINE_EXCEEDED)) && !is_complete(deployment, &status);
    // A second more than the deadline, as upstream: the clock must be past it then.
    let look_again = timed.then(|| {
        let whole = Duration::from_secs(deployment.spec.progress_deadline_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(0));
        time_left(deployment, now).unwrap_or(whole) + Duration::from_secs(1)
    });
    (status, look_again)
}

/// Sets Progressing.
fn judge(deployment: &Deployment, status: &mut DeploymentStatus, sets: &Sets, creating: Option<&str>, now: Timestamp) {
    let subject = match &sets.new {
        Some(set) => format!("ReplicaSet \"{}\"", meta::name(&set.metadata)),
        None => format!("Deployment \"{}\"", meta::name(&deployment.metadata)),
    };
    if let Some(name) = creating {
        return set_condition(
            status,
            Condition::new(PROGRESSING, "True", "NewReplicaSetCreated", format!("Created new replica set \"{name}\"")),
            now,
        );
    }
    if let (None, Some(new)) = (find(status, PROGRESSING), &sets.new) {
        let message = format!("Found new replica set \"{}\"", meta::name(&new.metadata));
        set_condition(status, Condition::new(PROGRESSING, "True", "FoundNewReplicaSet", message), now);
    }
    if let Some(resumed) = pause_change(deployment) {
        // The time spent paused does not count: the deadline starts again.
        return set_condition(status, resumed, now);
    }
    let was_complete = reason_before(deployment) == Some(NEW_REPLICA_SET_AVAILABLE);
    if was_complete && status.replicas == status.updated_replicas {
        return;
    }
    if is_complete(deployment, status) {
        let message = format!("{subject} has successfully progressed.");
        set_condition(status, Condition::new(PROGRESSING, "True", NEW_REPLICA_SET_AVAILABLE, message), now);
    } else if is_progressing(deployment, status) {
        // The update time must change even where status and reason stay: the deadline counts from it.
        let transition =
            find(status, PROGRESSING).filter(|c| c.status.as_deref() == Some("True")).and_then(|c| c.last_transition_time.clone());
        push(status, Condition::new(PROGRESSING, "True", "ReplicaSetUpdated", format!("{subject} is progressing.")), transition, now);
    } else if is_timed_out(deployment, now) {
        let message = format!("{subject} has timed out progressing.");
        set_condition(status, Condition::new(PROGRESSING, "False", PROGRESS_DEADLINE_EXCEEDED, message), now);
    }
}

/// `ReplicaFailure` as the newest ReplicaSet has it, or else an old one, with the times of the ReplicaSet.
fn set_replica_failure(status: &mut DeploymentStatus, sets: &Sets) {
    let newest_first = sets.new.iter().chain(sets.old.iter()).filter_map(|set| set.status.as_ref());
    let is_failure = |condition: &&ReplicaSetCondition| condition.type_.as_deref() == Some(REPLICA_FAILURE);
    let Some(failure) = newest_first.flat_map(|status| status.conditions.iter().flatten()).find(is_failure) else {
        return remove(status, REPLICA_FAILURE);
    };
    if find(status, REPLICA_FAILURE).is_some_and(|current| current.status == failure.status && current.reason == failure.reason) {
        return;
    }
    let same_status = find(status, REPLICA_FAILURE).filter(|current| current.status == failure.status);
    let transition = same_status.map_or_else(|| failure.last_transition_time.clone(), |current| current.last_transition_time.clone());
    remove(status, REPLICA_FAILURE);
    status.conditions.get_or_insert_default().push(DeploymentCondition {
        type_: failure.type_.clone(),
        status: failure.status.clone(),
        reason: failure.reason.clone(),
        message: failure.message.clone(),
        last_transition_time: transition,
        last_update_time: failure.last_transition_time.clone(),
    });
}

/// The effect of pausing or resuming on Progressing. A rollout that has timed out remains timed out.
pub fn pause_change(deployment: &Deployment) -> Option<Condition> {
    if !has_deadline(deployment) {
        return None;
    }
    let paused = deployment.spec.paused == Some(true);
    match (reason_before(deployment), paused) {
        (Some(PROGRESS_DEADLINE_EXCEEDED), _) => None,
        (Some("DeploymentPaused"), false) => Some(Condition::new(PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed")),
        (before, true) if before != Some("DeploymentPaused") => {
            Some(Condition::new(PROGRESSING, "Unknown", "DeploymentPaused", "Deployment is paused"))
        }
        _ => None,
    }
}

/// The present status with the reason why no ReplicaSet could be created.
pub fn with_create_failure(deployment: &Deployment, message: String, now: Timestamp) -> DeploymentStatus {
    let mut status = deployment.status.clone().unwrap_or_default();
    if has_deadline(deployment) {
        set_condition(&mut status, Condition::new(PROGRESSING, "False", REPLICA_SET_CREATE_ERROR, message), now);
    }
    status
}
