//! What a ReplicaSet or ReplicationController needs: how many Pods to create or which to delete, and its status.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::replicated::Replicated;
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
pub fn manage<S: Replicated>(set: &S, active: &[Arc<Pod>], related: impl FnOnce() -> Vec<Arc<Pod>>, now: Timestamp) -> Manage {
    let wanted = set.replicas();
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

/// The ages of the ready Pods to delete, each by the age of the youngest ready Pod; none when all Pods are deleted.
pub fn age_ratios(active: &[Arc<Pod>], surplus: &[Arc<Pod>], now: Timestamp) -> Vec<f64> {
    if surplus.len() >= active.len() {
        return Vec::new();
    }
    let age = |pod: &Arc<Pod>| {
        let created = meta::instant(pod.metadata.creation_timestamp.as_ref())?;
        Some(now.duration_since(created).as_secs_f64()).filter(|_| pods::is_ready(pod))
    };
    let Some(youngest) = active.iter().filter_map(age).min_by(f64::total_cmp).filter(|age| *age > 0.0) else { return Vec::new() };
    surplus.iter().filter_map(age).map(|age| age / youngest).collect()
}

/// A Pod of the template.
pub fn pod<S: Replicated>(set: &S) -> Pod {
    let template = set.template().cloned().unwrap_or_default();
    let from = template.metadata.unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", meta::name(set.meta()))),
            namespace: set.meta().namespace.clone(),
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

/// What a status is computed from.
pub struct Counted<'a> {
    /// Its active Pods.
    pub active: &'a [Arc<Pod>],
    /// How many Pods are being deleted.
    pub terminating: usize,
    /// Why Pods could not be created or deleted in this pass.
    pub failure: Option<String>,
}

/// The status.
pub fn status<S: Replicated>(set: &S, counted: &Counted<'_>, now: Timestamp) -> S::Status {
    let min_ready = set.min_ready_seconds();
    let labels = set.template().and_then(|t| t.metadata.as_ref()).and_then(|m| m.labels.as_ref());
    let labelled = |pod: &Pod| {
        let own = pod.metadata.labels.as_ref();
        labels.into_iter().flatten().all(|(key, value)| own.and_then(|own| own.get(key)) == Some(value))
    };
    let count = |test: &dyn Fn(&Pod) -> bool| number(counted.active.iter().filter(|pod| test(pod)).count());
    let some = |n: i32| (n != 0).then_some(n);
    S::converted(ReplicaSetStatus {
        replicas: number(counted.active.len()),
        fully_labeled_replicas: some(count(&labelled)),
        ready_replicas: some(count(&pods::is_ready)),
        available_replicas: some(count(&|pod| pods::is_available(pod, min_ready, now))),
        terminating_replicas: Some(number(counted.terminating)),
        observed_generation: set.meta().generation,
        conditions: conditions(set, counted, now),
    })
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// `ReplicaFailure`, while Pods cannot be created or deleted. During that time it does not change.
fn conditions<S: Replicated>(set: &S, counted: &Counted<'_>, now: Timestamp) -> Option<Vec<ReplicaSetCondition>> {
    let mut conditions = set.conditions();
    let is_failure = |condition: &ReplicaSetCondition| condition.type_.as_deref() == Some("ReplicaFailure");
    match &counted.failure {
        None => conditions.retain(|condition| !is_failure(condition)),
        Some(message) if !conditions.iter().any(is_failure) => {
            let reason = if counted.active.len() < set.replicas() { "FailedCreate" } else { "FailedDelete" };
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
