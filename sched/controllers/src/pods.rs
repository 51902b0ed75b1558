//! What controllers read from a Pod: whether it is active, ready or available, and which Pod is deleted first when there are
//! too many.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};

use crate::meta;

/// The annotation with which users order deletions.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The Node the Pod is bound to.
pub fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// `status.phase`; empty before it is set.
pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether the Pod has run to its end.
pub fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether the Pod counts as one of its owner's replicas.
pub fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && !meta::is_deleting(&pod.metadata)
}

/// Whether the Pod is being deleted and has not ended yet.
pub fn is_terminating(pod: &Pod) -> bool {
    !is_terminal(pod) && meta::is_deleting(&pod.metadata)
}

/// A condition of the Pod.
pub fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

/// The Pod's conditions, with this one instead of the one of the same type.
pub fn with_condition(pod: &Pod, condition: PodCondition) -> Vec<PodCondition> {
    let mut conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    conditions.retain(|other| other.type_ != condition.type_);
    conditions.push(condition);
    conditions
}

/// Whether the Pod is ready.
pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

/// Since when the Pod is ready.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    condition(pod, "Ready").filter(|c| c.status == "True").and_then(|c| meta::instant(c.last_transition_time.as_ref()))
}

/// Whether the Pod has been ready for `min_ready_seconds`.
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    is_ready(pod) && available_in(pod, min_ready_seconds, now).is_none()
}

/// How long until a ready Pod becomes available; `None` when it is available or not ready.
pub fn available_in(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    if min_ready_seconds <= 0 || !is_ready(pod) {
        return None;
    }
    let needed = Duration::from_secs(u64::try_from(min_ready_seconds).unwrap_or_default());
    let Some(since) = ready_since(pod) else { return Some(needed) };
    let been = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    needed.checked_sub(been).filter(|left| !left.is_zero())
}

/// The order in which surplus Pods are deleted: upstream's `ActivePodsWithRanks` as a total order. Unbound before bound,
/// pending before running, not ready before ready, lower before higher deletion cost, crowded before alone, ready for a shorter
/// time, more restarts, newer.
pub fn deletion_order(mut pods: Vec<Arc<Pod>>, related: &[Arc<Pod>], now: Timestamp) -> Vec<Arc<Pod>> {
    let crowd = |pod: &Pod| match node_name(pod) {
        Some(node) => related.iter().filter(|other| is_active(other) && node_name(other) == Some(node)).count(),
        None => 0,
    };
    pods.sort_by_cached_key(|pod| {
        let phase = match phase(pod) {
            "Running" => 2_u8,
            "Unknown" => 1,
            _ => 0,
        };
        let ready = is_ready(pod);
        let ready_age = if ready { log_age(ready_since(pod), now) } else { 0 };
        (
            (node_name(pod).is_some(), phase, ready, cost(pod)),
            Reverse(crowd(pod)),
            (ready_age, Reverse(restarts(pod)), log_age(meta::instant(pod.metadata.creation_timestamp.as_ref()), now)),
            pod.metadata.uid.clone(),
        )
    });
    pods
}

fn cost(pod: &Pod) -> i32 {
    meta::annotation(&pod.metadata, DELETION_COST).and_then(|cost| cost.parse().ok()).unwrap_or(0)
}

/// Restarts of the container that restarted most.
fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.map(|container| container.restart_count).max().unwrap_or(0)
}

/// Age in powers of two, as upstream's `LogarithmicScaleDown`: ages of the same order are the same.
/// Unknown is youngest.
fn log_age(since: Option<Timestamp>, now: Timestamp) -> u32 {
    let age = since.map(|since| now.duration_since(since).as_nanos());
    age.and_then(|nanos| u128::try_from(nanos).ok()).and_then(u128::checked_ilog2).map_or(0, |log| log + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const NOW: i64 = 1_000_000;

    fn pod(name: &str, spec: Value, status: Value) -> Arc<Pod> {
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name, "uid": name}, "spec": spec, "status": status})).expect("a Pod"))
    }

    fn ready(since: i64) -> Value {
        let at = Timestamp::from_second(since).expect("in range").to_string();
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at}]})
    }

    #[test]
    fn surplus_pods_go_in_upstreams_order() {
        let bound = json!({"nodeName": "n1", "containers": []});
        let pods = vec![
            pod("8-old", bound.clone(), ready(NOW - 10_000)),
            pod("7-young", bound.clone(), ready(NOW - 10)),
            pod("4-unready", bound.clone(), json!({"phase": "Running"})),
            pod("2-unbound", json!({"containers": []}), json!({"phase": "Pending"})),
            pod("3-pending", bound.clone(), json!({"phase": "Pending"})),
        ];
        let now = Timestamp::from_second(NOW).expect("in range");
        let order: Vec<String> = deletion_order(pods, &[], now).iter().map(|p| meta::name(&p.metadata).to_owned()).collect();
        assert_eq!(order, ["2-unbound", "3-pending", "4-unready", "7-young", "8-old"]);
    }

    #[test]
    fn the_crowded_node_loses_first() {
        let at = |node: &str| json!({"nodeName": node, "containers": []});
        let pods = vec![pod("alone", at("n1"), ready(NOW - 10)), pod("crowded", at("n2"), ready(NOW - 10_000))];
        let mut related = pods.clone();
        related.push(pod("sibling", at("n2"), ready(NOW - 10)));
        let now = Timestamp::from_second(NOW).expect("in range");
        let order = deletion_order(pods, &related, now);
        assert_eq!(order.first().map(|p| meta::name(&p.metadata)), Some("crowded"));
    }

    #[test]
    fn a_pod_is_available_after_its_minimum_ready_time() {
        let pod = pod("p", json!({"containers": []}), ready(NOW - 5));
        let now = Timestamp::from_second(NOW).expect("in range");
        assert!(is_available(&pod, 0, now));
        assert!(is_available(&pod, 5, now));
        assert!(!is_available(&pod, 8, now));
        assert_eq!(available_in(&pod, 8, now), Some(Duration::from_secs(3)));
    }
}
