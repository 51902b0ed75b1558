use super::*;
use serde_json::{Value, json};

const NOW: &str = "2026-01-01T00:10:00Z";

fn at(time: &str) -> Timestamp {
    time.parse().expect("a time")
}

fn budget(spec: Value, status: Value) -> PodDisruptionBudget {
    let budget = json!({"metadata": {"name": "b", "namespace": "ns", "generation": 3}, "spec": spec, "status": status});
    serde_json::from_value(budget).expect("a budget")
}

fn pod(name: &str, ready: bool, deleting: bool) -> Arc<Pod> {
    let deleted = deleting.then_some("2026-01-01T00:00:00Z");
    let ready = json!({"type": "Ready", "status": if ready { "True" } else { "False" }});
    let pod = json!({"metadata": {"name": name, "deletionTimestamp": deleted}, "status": {"phase": "Running", "conditions": [ready]}});
    Arc::new(serde_json::from_value(pod).expect("a Pod"))
}

/// That many ready Pods, named `p0`, `p1`, …
fn ready(count: usize) -> Vec<Arc<Pod>> {
    (0..count).map(|number| pod(&format!("p{number}"), true, false)).collect()
}

fn scale(replicas: i32) -> Total {
    Total { replicas, has_unmanaged: false }
}

/// The budget's computed numbers: expected, desired, healthy and allowed.
fn reckoned(spec: Value, pods: &[Arc<Pod>], replicas: i32) -> (i32, i32, i32, i32) {
    let status = plan(&budget(spec, json!({})), pods, &scale(replicas), at(NOW)).expect("a plan").status;
    assert_eq!(status.observed_generation, Some(3));
    let number = |number: Option<i32>| number.expect("a number");
    (number(status.expected_pods), number(status.desired_healthy), number(status.current_healthy), number(status.disruptions_allowed))
}

#[test]
fn budgets_are_reckoned_as_upstream() {
    let cases = [
        (json!({"minAvailable": 2}), 3, 9, (3, 2, 3, 1)),
        (json!({"minAvailable": 3}), 3, 9, (3, 3, 3, 0)),
        (json!({"minAvailable": 5}), 3, 9, (3, 5, 3, 0)),
        (json!({"minAvailable": 0}), 3, 9, (3, 0, 3, 3)),
        (json!({"minAvailable": 0}), 0, 9, (0, 0, 0, 0)),
        (json!({"minAvailable": "50%"}), 7, 7, (7, 4, 7, 3)),
        (json!({"minAvailable": "100%"}), 7, 7, (7, 7, 7, 0)),
        (json!({"minAvailable": "1%"}), 7, 7, (7, 1, 7, 6)),
        (json!({"maxUnavailable": 1}), 3, 3, (3, 2, 3, 1)),
        (json!({"maxUnavailable": 1}), 2, 3, (3, 2, 2, 0)),
        (json!({"maxUnavailable": 9}), 3, 3, (3, 0, 3, 3)),
        (json!({"maxUnavailable": "30%"}), 7, 7, (7, 4, 7, 3)),
        (json!({"maxUnavailable": "0%"}), 7, 7, (7, 7, 7, 0)),
        (json!({"maxUnavailable": 1}), 0, 0, (0, 0, 0, 0)),
        (json!({}), 3, 3, (0, 0, 3, 0)),
    ];
    for (spec, pods, replicas, wanted) in cases {
        assert_eq!(reckoned(spec.clone(), &ready(pods), replicas), wanted, "{spec} of {pods} Pods, scale {replicas}");
    }
}

#[test]
fn only_ready_pods_that_stay_are_healthy() {
    let pods = [pod("ready", true, false), pod("unready", false, false), pod("leaving", true, true)];
    assert_eq!(reckoned(json!({"minAvailable": 0}), &pods, 0), (3, 0, 1, 1));
}

#[test]
fn a_granted_eviction_counts_until_the_pod_is_being_deleted_or_two_minutes_are_over() {
    let granted = json!({"disruptedPods": {
        "p0": "2026-01-01T00:09:00Z", "p1": "2026-01-01T00:07:59Z", "gone": "2026-01-01T00:09:59Z", "leaving": "2026-01-01T00:09:59Z",
    }});
    let mut pods = ready(4);
    pods.push(pod("leaving", true, true));
    let plan = plan(&budget(json!({"minAvailable": 1}), granted), &pods, &scale(0), at(NOW)).expect("a plan");
    let waiting = plan.status.disrupted_pods.expect("one is waited for");
    assert_eq!(waiting.keys().collect::<Vec<_>>(), ["p0"]);
    assert_eq!((plan.status.current_healthy, plan.status.disruptions_allowed), (Some(3), Some(2)), "p1 counts again");
    assert_eq!(plan.not_deleted.iter().map(|pod| meta::name(&pod.metadata)).collect::<Vec<_>>(), ["p1"]);
    assert_eq!(plan.look_again, Some(Duration::from_millis(60_001)));
}

#[test]
fn the_condition_says_whether_a_pod_may_go_and_since_when() {
    let condition = |spec: Value, status: Value| {
        let plan = plan(&budget(spec, status), &ready(3), &scale(3), at(NOW)).expect("a plan");
        plan.status.conditions.expect("conditions").remove(0)
    };
    let old = json!({"conditions": [{"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let allowed = condition(json!({"minAvailable": 2}), old.clone());
    assert_eq!((allowed.status.as_str(), allowed.reason.as_str(), allowed.observed_generation), ("True", "SufficientPods", Some(3)));
    assert_eq!(allowed.last_transition_time.0, at("2026-01-01T00:00:00Z"), "it has not changed since");
    let refused = condition(json!({"minAvailable": 3}), old);
    assert_eq!((refused.status.as_str(), refused.reason.as_str()), ("False", "InsufficientPods"));
    assert_eq!(refused.last_transition_time.0, at(NOW));
}

#[test]
fn a_budget_that_cannot_be_reckoned_allows_nothing() {
    let before = json!({"observedGeneration": 2, "disruptionsAllowed": 2, "currentHealthy": 3, "desiredHealthy": 1, "expectedPods": 3});
    let status = failed(&budget(json!({}), before), "found no controllers for pod \"p\"", at(NOW));
    assert_eq!((status.disruptions_allowed, status.current_healthy, status.observed_generation), (Some(0), Some(3), Some(2)));
    let condition = status.conditions.expect("conditions").remove(0);
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "SyncFailed"));
    assert_eq!(condition.message, "found no controllers for pod \"p\"");
    assert!(plan(&budget(json!({"minAvailable": "half"}), json!({})), &[], &scale(1), at(NOW)).is_err());
}

#[test]
fn a_selector_is_printed_as_in_upstreams_event() {
    let selector = json!({"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["a", "b"]}]});
    let message = unmanaged_message(&budget(json!({"selector": selector}), json!({})));
    let text = "(selector: &LabelSelector{MatchLabels:map[string]string{app: x,},\
                MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:In,Values:[a b],},},})";
    assert!(message.contains(text), "{message}");
}
