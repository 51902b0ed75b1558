//! The status of a StatefulSet: the counts of its Pods, and the end of an update.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::Pod;

use super::identity;
use super::plan::{Snapshot, update};
use crate::{meta, pods, revisions};

fn some(count: usize) -> Option<i32> {
    Some(number(count)).filter(|count| *count != 0)
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The counts of the Pods as they are.
pub fn status(snapshot: &Snapshot<'_>) -> StatefulSetStatus {
    let (set, revisions) = (snapshot.set, snapshot.revisions);
    let min_ready = set.spec.min_ready_seconds.unwrap_or(0);
    let count = |test: &dyn Fn(&Pod) -> bool| snapshot.pods.iter().filter(|pod| !pods::phase(pod).is_empty() && test(pod)).count();
    let of = |revision: &ControllerRevision, pod: &Pod| {
        !meta::is_deleting(&pod.metadata) && identity::revision(pod) == revisions::name(revision)
    };
    let is_available = |pod: &Pod| identity::is_running_and_ready(pod) && pods::is_available(pod, min_ready, snapshot.now);
    StatefulSetStatus {
        replicas: number(count(&|_| true)),
        ready_replicas: some(count(&identity::is_running_and_ready)),
        available_replicas: Some(number(count(&is_available))),
        current_replicas: some(count(&|pod| of(&revisions.current, pod))),
        updated_replicas: some(count(&|pod| of(&revisions.update, pod))),
        current_revision: Some(revisions::name(&revisions.current).to_owned()),
        update_revision: Some(revisions::name(&revisions.update).to_owned()),
        collision_count: Some(revisions.collisions),
        observed_generation: set.metadata.generation,
        conditions: set.status.as_ref().and_then(|status| status.conditions.clone()),
    }
}

/// The status after the update deleted these Pods: they do not count as current any more.
pub fn without(status: &mut StatefulSetStatus, deleted: &[Arc<Pod>], current: &ControllerRevision) {
    let gone = deleted.iter().filter(|pod| identity::revision(pod) == revisions::name(current)).count();
    status.current_replicas = status.current_replicas.map(|count| count.saturating_sub(number(gone))).filter(|count| *count > 0);
}

/// Once all Pods are updated and ready, the revision of the update is the current one.
pub fn complete(set: &StatefulSet, status: &mut StatefulSetStatus) {
    let wanted = identity::replicas(set);
    let (updated, ready) = (status.updated_replicas.unwrap_or(0), status.ready_replicas.unwrap_or(0));
    if update::is_rolling(set) && (updated, ready, status.replicas) == (wanted, wanted, wanted) {
        status.current_replicas = status.updated_replicas;
        status.current_revision = status.update_revision.clone();
    }
}
