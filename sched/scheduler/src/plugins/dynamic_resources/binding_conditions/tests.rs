use serde_json::{Value, json};

use super::*;

const TEN_MINUTES: Duration = Duration::from_secs(600);

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

/// A device of a claim with these binding conditions, the failure condition `broken`, and this share of the device.
fn result(device: &str, conditions: &[&str], share: Option<&str>) -> Value {
    let failures: &[&str] = if conditions.is_empty() { &[] } else { &["broken"] };
    json!({"request": "r", "driver": "d", "pool": "p", "device": device, "shareID": share, "bindingConditions": conditions,
        "bindingFailureConditions": failures})
}

/// What a driver reports of a device: the conditions with their states.
fn reported(device: &str, share: Option<&str>, conditions: &[(&str, &str)]) -> Value {
    let (since, mut states) = ("2026-01-01T00:00:00Z", Vec::new());
    for (type_, status) in conditions {
        states.push(json!({"type": type_, "status": status, "reason": "R", "message": "m", "lastTransitionTime": since}));
    }
    json!({"driver": "d", "pool": "p", "device": device, "shareID": share, "conditions": states})
}

fn claim(results: Vec<Value>, since: Option<&str>, devices: Vec<Value>) -> ResourceClaim {
    let allocation = json!({"devices": {"results": results}, "allocationTimestamp": since});
    let status = json!({"allocation": allocation, "devices": devices});
    let metadata = json!({"name": "c", "namespace": "default", "uid": "c"});
    serde_json::from_value(json!({"metadata": metadata, "spec": {}, "status": status})).expect("a claim")
}

#[test]
fn all_conditions_must_be_true_and_no_failure() {
    let one = || vec![result("a", &["x", "y"], None)];
    let two = || vec![result("a", &["x"], None), result("b", &["x"], None)];
    let shares = || vec![result("a", &["x"], Some("1")), result("a", &["x"], Some("2"))];
    let failed = "device binding failed: claim=c, reason=R, message=\"m\"";
    for (name, results, devices, expected) in [
        ("no conditions", vec![result("a", &[], None)], vec![], "complete"),
        ("no report", one(), vec![], "awaited"),
        ("a report of another device", one(), vec![reported("b", None, &[("x", "True"), ("y", "True")])], "awaited"),
        ("one condition", one(), vec![reported("a", None, &[("x", "True")])], "awaited"),
        ("one is unknown", one(), vec![reported("a", None, &[("x", "True"), ("y", "Unknown")])], "awaited"),
        ("all conditions", one(), vec![reported("a", None, &[("y", "True"), ("x", "True"), ("z", "False")])], "complete"),
        ("a failure", one(), vec![reported("a", None, &[("broken", "True")])], failed),
        ("no failure", one(), vec![reported("a", None, &[("broken", "False")])], "awaited"),
        ("all conditions and a failure", one(), vec![reported("a", None, &[("x", "True"), ("y", "True"), ("broken", "True")])], failed),
        ("one of two devices", two(), vec![reported("a", None, &[("x", "True")])], "awaited"),
        ("the second device failed", two(), vec![reported("b", None, &[("broken", "True")])], failed),
        (
            "a failure of a device without conditions",
            vec![result("a", &[], None)],
            vec![reported("a", None, &[("broken", "True")])],
            "complete",
        ),
        ("one of two shares", shares(), vec![reported("a", Some("2"), &[("x", "True")])], "awaited"),
        ("both shares", shares(), vec![reported("a", Some("2"), &[("x", "True")]), reported("a", Some("1"), &[("x", "True")])], "complete"),
    ] {
        let claim = claim(results, Some("2026-01-01T00:00:00Z"), devices);
        let text = match preparation(&claim, TEN_MINUTES, at("2026-01-01T00:05:00Z")) {
            Ok(Preparation::Complete) => "complete".to_owned(),
            Ok(Preparation::Awaited { until }) => {
                assert_eq!(until, Some(at("2026-01-01T00:10:00Z")), "{name}");
                "awaited".to_owned()
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(text, expected, "{name}");
    }
}

#[test]
fn the_time_begins_with_the_allocation() {
    let state = |since: Option<&str>, is_complete: bool, now: &str| {
        let status = if is_complete { "True" } else { "False" };
        let claim = claim(vec![result("a", &["x"], None)], since, vec![reported("a", None, &[("x", status)])]);
        preparation(&claim, TEN_MINUTES, at(now))
    };
    let (start, end, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z", "2026-01-01T00:10:01Z");
    assert_eq!(state(Some(start), false, end), Ok(Preparation::Awaited { until: Some(at(end)) }));
    assert_eq!(state(Some(start), false, late), Err(DeviceBindingError::TimedOut("c".to_owned())));
    assert_eq!(state(Some(start), true, late), Ok(Preparation::Complete), "it was in time");
    assert_eq!(state(None, false, late), Ok(Preparation::Awaited { until: None }));
    let mut unallocated = claim(Vec::new(), None, Vec::new());
    unallocated.status = None;
    assert_eq!(preparation(&unallocated, TEN_MINUTES, at(late)), Ok(Preparation::Awaited { until: None }));
}
