use serde_json::json;

use crate::tests::row;

#[test]
fn events_of_the_core_group() {
    let event = json!({
        "firstTimestamp": "2024-01-02T11:00:00Z", "lastTimestamp": "2024-01-02T11:58:00Z", "count": 7, "type": "Warning", "reason": "BackOff",
        "message": "back-off restarting\n", "involvedObject": {"kind": "Pod", "name": "web", "fieldPath": "spec.containers{c}"},
        "source": {"component": "kubelet", "host": "n1"},
    });
    assert_eq!(
        row("", "Event", event),
        "2m | Warning | BackOff | pod/web | spec.containers{c} | kubelet, n1 | back-off restarting | 60m | 7 | x"
    );
}

#[test]
fn events_of_the_newer_kind_in_both_groups() {
    let times = json!({"eventTime": "2024-01-02T11:59:30.123456Z", "type": "Normal", "reason": "Scheduled", "reportingInstance": "s-1"});
    let mut core = times.clone();
    core["involvedObject"] = json!({"kind": "Pod", "name": "web"});
    core["message"] = "assigned".into();
    core["reportingComponent"] = "scheduler".into();
    let wanted = "29s | Normal | Scheduled | pod/web |  | scheduler, s-1 | assigned | 29s | 1 | x";
    assert_eq!(row("", "Event", core), wanted);
    let mut new = times;
    new["regarding"] = json!({"kind": "Pod", "name": "web"});
    new["note"] = "assigned".into();
    new["reportingController"] = "scheduler".into();
    assert_eq!(row("events.k8s.io", "Event", new.clone()), wanted);
    new["series"] = json!({"count": 4, "lastObservedTime": "2024-01-02T11:59:50.5Z"});
    assert_eq!(row("events.k8s.io", "Event", new), "9s | Normal | Scheduled | pod/web |  | scheduler, s-1 | assigned | 29s | 4 | x");
}

#[test]
fn an_event_without_times_is_of_unknown_age() {
    assert_eq!(row("", "Event", json!({"involvedObject": {"kind": "Node"}})), "<unknown> |  |  | node |  |  |  | <unknown> | 1 | x");
}
