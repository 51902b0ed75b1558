//! Whether a Node is alive, from the changes of its Lease and status.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, PodCondition};
use tokio::time::Instant;

use crate::config::NodeTiming;
use crate::{meta, nodes};

/// The conditions that a lost Node cannot report.
const KUBELET_CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// The last heartbeats of a Node, and when this process observed them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// UID of the Node.
    pub uid: String,
    /// The kubelet's own times, only compared with each other.
    heartbeat: Option<Timestamp>,
    renewed: Option<Timestamp>,
    /// The time of the last change, by a clock that is never set: a step of the machine's time must not make every Node silent
    /// at once.
    heard_at: Instant,
    /// Since when the Node is not ready, as its Pods were last marked for it.
    pub marked_since: Option<Timestamp>,
}

/// Records the present heartbeats. A Node without heartbeats counts from its creation, or from the start of this process when
/// that is later: the process does not know what happened before.
pub fn observe(before: Option<Health>, node: &Node, lease: Option<&Lease>, now: Instant) -> Health {
    let heartbeat = nodes::condition(node, "Ready").and_then(|ready| meta::instant(ready.last_heartbeat_time.as_ref()));
    let renewed = lease.and_then(|lease| lease.spec.as_ref()).and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
    let uid = meta::uid(&node.metadata).to_owned();
    match before {
        None => Health { uid, heartbeat, renewed, heard_at: now, marked_since: None },
        Some(before) => {
            // Any change is a sign of life: a clock that was set back does not make a Node silent.
            let heard = (heartbeat.is_some() && heartbeat != before.heartbeat) || (renewed.is_some() && renewed != before.renewed);
            let heard_at = if heard { now } else { before.heard_at };
            Health {
                uid,
                heartbeat: heartbeat.or(before.heartbeat),
                renewed: renewed.or(before.renewed),
                heard_at,
                marked_since: before.marked_since,
            }
        }
    }
}

fn grace(node: &Node, timing: &NodeTiming) -> Duration {
    let reported = nodes::condition(node, "Ready").is_some_and(|ready| ready.last_heartbeat_time.is_some());
    if reported { timing.grace_period } else { timing.startup_grace_period }
}

/// How long until the Node counts as lost; `None` when its conditions say so already.
pub fn lost_in(node: &Node, health: &Health, timing: &NodeTiming, now: Instant) -> Option<Duration> {
    let known_lost =
        KUBELET_CONDITIONS.iter().all(|kind| nodes::condition(node, kind).is_some_and(|condition| condition.status == "Unknown"));
    if known_lost {
        return None;
    }
    Some(grace(node, timing).saturating_sub(now.duration_since(health.heard_at)))
}

/// The conditions to write on a lost Node, with the time to write; `None` while the Node is not lost, or when it has these
/// conditions.
pub fn conditions_of_lost(
    node: &Node,
    health: &Health,
    timing: &NodeTiming,
    now: Instant,
    written: Timestamp,
) -> Option<Vec<NodeCondition>> {
    if !lost_in(node, health, timing, now)?.is_zero() {
        return None;
    }
    let mut conditions = node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let at = meta::whole_seconds(written);
    for kind in KUBELET_CONDITIONS {
        match conditions.iter_mut().find(|condition| condition.type_ == kind) {
            None => conditions.push(NodeCondition {
                type_: kind.to_owned(),
                status: "Unknown".to_owned(),
                reason: Some("NodeStatusNeverUpdated".to_owned()),
                message: Some("Kubelet never posted node status.".to_owned()),
                last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                last_transition_time: Some(at.clone()),
            }),
            Some(condition) if condition.status != "Unknown" => {
                condition.status = "Unknown".to_owned();
                condition.reason = Some("NodeStatusUnknown".to_owned());
                condition.message = Some("Kubelet stopped posting node status.".to_owned());
                condition.last_transition_time = Some(at.clone());
            }
            Some(_) => {}
        }
    }
    Some(conditions)
}

/// The conditions of a Pod with `Ready` false.
pub fn pod_conditions_not_ready(pod: &Pod, now: Timestamp) -> Vec<PodCondition> {
    let mut conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    for ready in conditions.iter_mut().filter(|condition| condition.type_ == "Ready" && condition.status == "True") {
        ready.status = "False".to_owned();
        ready.last_transition_time = Some(meta::whole_seconds(now));
    }
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).expect("in range")
    }

    fn clock(second: u64) -> Instant {
        static BEGUN: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        *BEGUN + Duration::from_secs(second)
    }

    fn node(heartbeat: i64) -> Node {
        let time = at(heartbeat).to_string();
        let condition =
            |kind: &str, status: &str| json!({"type": kind, "status": status, "lastHeartbeatTime": time, "lastTransitionTime": time});
        let conditions = [condition("Ready", "True"), condition("MemoryPressure", "False")];
        serde_json::from_value(
            json!({"metadata": {"name": "n", "uid": "n", "creationTimestamp": time}, "status": {"conditions": conditions}}),
        )
        .expect("a Node")
    }

    fn lease(renewed: i64) -> Lease {
        serde_json::from_value(json!({"spec": {"renewTime": at(renewed).to_string()}})).expect("a Lease")
    }

    #[test]
    fn either_heartbeat_keeps_a_node() {
        let timing = NodeTiming::default();
        let first = observe(None, &node(0), Some(&lease(0)), clock(100));
        assert_eq!(lost_in(&node(0), &first, &timing, clock(110)), Some(Duration::from_secs(30)));
        let by_lease = observe(Some(first.clone()), &node(0), Some(&lease(10)), clock(120));
        assert_eq!(lost_in(&node(0), &by_lease, &timing, clock(130)), Some(Duration::from_secs(30)));
        let by_status = observe(Some(first.clone()), &node(5), Some(&lease(0)), clock(120));
        assert_eq!(lost_in(&node(5), &by_status, &timing, clock(130)), Some(Duration::from_secs(30)));
        let silent = observe(Some(first), &node(0), Some(&lease(0)), clock(139));
        assert_eq!(conditions_of_lost(&node(0), &silent, &timing, clock(139), at(139)), None);
        assert!(conditions_of_lost(&node(0), &silent, &timing, clock(140), at(140)).is_some());
    }

    #[test]
    fn a_clock_behind_or_ahead_does_not_matter() {
        let timing = NodeTiming::default();
        let health = observe(None, &node(-5_000), Some(&lease(9_000)), clock(0));
        let health = observe(Some(health), &node(-5_000), Some(&lease(9_010)), clock(30));
        assert_eq!(lost_in(&node(-5_000), &health, &timing, clock(30)), Some(Duration::from_secs(40)));
        let set_back = observe(Some(health), &node(-5_000), Some(&lease(-9_000)), clock(60));
        assert_eq!(lost_in(&node(-5_000), &set_back, &timing, clock(60)), Some(Duration::from_secs(40)));
    }

    #[test]
    fn the_conditions_of_a_lost_node_are_unknown() {
        let timing = NodeTiming::default();
        let health = observe(None, &node(0), None, clock(0));
        let conditions = conditions_of_lost(&node(0), &health, &timing, clock(41), at(41)).expect("lost");
        let written: Vec<_> =
            conditions.iter().map(|c| format!("{} {} {}", c.type_, c.status, c.reason.as_deref().unwrap_or_default())).collect();
        assert_eq!(
            written,
            [
                "Ready Unknown NodeStatusUnknown",
                "MemoryPressure Unknown NodeStatusUnknown",
                "DiskPressure Unknown NodeStatusNeverUpdated",
                "PIDPressure Unknown NodeStatusNeverUpdated",
            ]
        );
        let mut lost = node(0);
        lost.status.get_or_insert_default().conditions = Some(conditions);
        assert_eq!(lost_in(&lost, &health, &timing, clock(50)), None, "nothing more to wait for");
    }

    #[test]
    fn a_node_that_never_reported_has_longer() {
        let silent: Node = serde_json::from_value(json!({"metadata": {"name": "n"}})).expect("a Node");
        let health = observe(None, &silent, None, clock(0));
        assert_eq!(lost_in(&silent, &health, &NodeTiming::default(), clock(0)), Some(Duration::from_secs(60)));
    }
}
