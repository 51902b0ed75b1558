//! What a ReplicaSet needs: how many Pods to create or which to delete, and its status.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{meta, pods};

/// The highest number of Pods that one pass creates or deletes, upstream's `BurstReplicas`.
const BURST_MAX: usize = 500;

/// What to do about the number of Pods.
#[derive(Debug, PartialEq)]
pub enum Manage {
    /// The number is right.
    Nothing,
    /// This number of Pods is missing.
    Create(usize),
    /// These Pods are surplus.
    Delete(Vec<Arc<Pod>>),
}

/// Compares the active Pods with the wanted number. `related` returns the Pods by which crowding is counted; it is called only
/// when a Pod must be deleted.
pub fn manage(set: &ReplicaSet, active: &[Arc<Pod>], related: impl FnOnce() -> Vec<Arc<Pod>>, now: Timestamp) -> Manage {
    let wanted = usize::try_from(set.spec.replicas.unwrap_or(1)).unwrap_or(0);
    if active.len() < wanted {
        return Manage::Create((wanted - active.len()).min(BURST_MAX));
    }
    let surplus = (active.len() - wanted).min(BURST_MAX);
    if surplus == 0 {
        return Manage::Nothing;
    }
    let mut order = pods::deletion_order(active.to_vec(), &related(), now);
    order.truncate(surplus);
    Manage::Delete(order)
}

/// A Pod of the ReplicaSet's template.
pub fn pod(set: &ReplicaSet) -> Pod {
    let template = set.spec.template.clone().unwrap_or_default();
    let from = template.metadata.unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", meta::name(&set.metadata))),
            namespace: set.metadata.namespace.clone(),
            labels: from.labels,
            annotations: from.annotations,
            finalizers: from.finalizers,
            owner_references: Some(vec![meta::controller_reference(set)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

/// What a ReplicaSet's status is computed from.
pub struct Counted<'a> {
    /// Its active Pods.
    pub active: &'a [Arc<Pod>],
    /// How many Pods are being deleted.
    pub terminating: usize,
    /// Why Pods could not be created or deleted in this pass.
    pub failure: Option<String>,
}

/// The status of a ReplicaSet.
pub fn status(set: &ReplicaSet, counted: &Counted<'_>, now: Timestamp) -> ReplicaSetStatus {
    let min_ready = set.spec.min_ready_seconds.unwrap_or(0);
    let labels = set.spec.template.as_ref().and_then(|t| t.metadata.as_ref()).and_then(|m| m.labels.as_ref());
    let labelled = |pod: &Pod| {
        let own = pod.metadata.labels.as_ref();
        labels.into_iter().flatten().all(|(key, value)| own.and_then(|own| own.get(key)) == Some(value))
    };
    let count = |test: &dyn Fn(&Pod) -> bool| number(counted.active.iter().filter(|pod| test(pod)).count());
    let some = |n: i32| (n != 0).then_some(n);
    ReplicaSetStatus {
        replicas: number(counted.active.len()),
        fully_labeled_replicas: some(count(&labelled)),
        ready_replicas: some(count(&pods::is_ready)),
        available_replicas: some(count(&|pod| pods::is_available(pod, min_ready, now))),
        terminating_replicas: Some(number(counted.terminating)),
        observed_generation: set.metadata.generation,
        conditions: conditions(set, counted, now),
    }
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// `ReplicaFailure`, while Pods cannot be created or deleted. During that time it does not change.
fn conditions(set: &ReplicaSet, counted: &Counted<'_>, now: Timestamp) -> Option<Vec<ReplicaSetCondition>> {
    let mut conditions = set.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let is_failure = |condition: &ReplicaSetCondition| condition.type_.as_deref() == Some("ReplicaFailure");
    match &counted.failure {
        None => conditions.retain(|condition| !is_failure(condition)),
        Some(message) if !conditions.iter().any(is_failure) => {
            let wanted = usize::try_from(set.spec.replicas.unwrap_or(1)).unwrap_or(0);
            let reason = if counted.active.len() < wanted { "FailedCreate" } else { "FailedDelete" };
            conditions.push(ReplicaSetCondition {
                type_: Some("ReplicaFailure".to_owned()),
                status: Some("True".to_owned()),
                reason: Some(reason.to_owned()),
                message: Some(message.clone()),
                last_transition_time: Some(meta::whole_seconds(now)),
            });
        }
        Some(_) => {}
    }
    (!conditions.is_empty()).then_some(conditions)
}

#[cfg(test)]
mod tests;
