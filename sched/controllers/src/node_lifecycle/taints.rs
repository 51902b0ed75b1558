//! Taints that follow a Node's conditions.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};

use crate::{meta, nodes};

/// A condition, its status, and the taint for both.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The `NoExecute` taint for the Node's readiness.
pub fn no_execute(node: &Node) -> Option<&'static str> {
    match nodes::condition(node, "Ready")?.status.as_str() {
        "False" => Some(NOT_READY),
        "Unknown" => Some(UNREACHABLE),
        _ => None,
    }
}

/// Whether a taint is one of the two that make Pods leave a lost Node.
pub fn is_ours_no_execute(taint: &Taint) -> bool {
    taint.effect == "NoExecute" && matches!(taint.key.as_str(), NOT_READY | UNREACHABLE)
}

fn is_ours_no_schedule(taint: &Taint) -> bool {
    taint.effect == "NoSchedule" && (taint.key == UNSCHEDULABLE || BY_CONDITION.iter().any(|(_, _, key)| *key == taint.key))
}

/// All taints that the Node should have: the taints of others unchanged, ours by its conditions, and `no_execute` when it is
/// allowed. `None` when the Node has exactly these.
pub fn planned(node: &Node, no_execute: Option<&str>, now: Timestamp) -> Option<Vec<Taint>> {
    let present = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for (kind, status, key) in BY_CONDITION {
        if nodes::condition(node, kind).is_some_and(|condition| condition.status == status) {
            wanted.push((key, "NoSchedule"));
        }
    }
    if node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)) {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    wanted.extend(no_execute.map(|key| (key, "NoExecute")));
    // Admission taints a new Node. This taint stays until the Node reports its state.
    let reported = nodes::condition(node, "Ready").is_some();
    let stays = |taint: &Taint| {
        let ours = is_ours_no_schedule(taint) || is_ours_no_execute(taint);
        let unreported = !reported && taint.key == NOT_READY;
        !ours || unreported || wanted.contains(&(taint.key.as_str(), taint.effect.as_str()))
    };
    let mut taints: Vec<Taint> = present.iter().filter(|taint| stays(taint)).cloned().collect();
    for (key, effect) in &wanted {
        if !taints.iter().any(|taint| taint.key == *key && taint.effect == *effect) {
            let time_added = Some(meta::whole_seconds(now));
            taints.push(Taint { key: (*key).to_owned(), effect: (*effect).to_owned(), time_added, value: None });
        }
    }
    (taints != present).then_some(taints)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(conditions: &[(&str, &str)], taints: Value, unschedulable: bool) -> Node {
        let conditions: Vec<Value> = conditions.iter().map(|(kind, status)| json!({"type": kind, "status": status})).collect();
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"taints": taints, "unschedulable": unschedulable}, "status": {"conditions": conditions}}))
            .expect("a Node")
    }

    fn planned_keys(taints: Option<Vec<Taint>>) -> Option<Vec<String>> {
        taints.map(|taints| taints.iter().map(|t| format!("{}:{}", t.key.trim_start_matches("node.kubernetes.io/"), t.effect)).collect())
    }

    #[test]
    fn taints_follow_conditions() {
        let now = Timestamp::UNIX_EPOCH;
        let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
        let own = taint("example.com/mine", "NoSchedule");
        type Case<'a> = (Node, Option<&'a str>, Option<Vec<&'a str>>);
        let cases: Vec<Case<'_>> = vec![
            (node(&[("Ready", "True")], json!([]), false), None, None),
            (
                node(&[("Ready", "True"), ("DiskPressure", "True")], json!([]), true),
                None,
                Some(vec!["disk-pressure:NoSchedule", "unschedulable:NoSchedule"]),
            ),
            (
                node(&[("Ready", "Unknown")], json!([own]), false),
                Some(UNREACHABLE),
                Some(vec!["example.com/mine:NoSchedule", "unreachable:NoSchedule", "unreachable:NoExecute"]),
            ),
            (
                node(&[("Ready", "True"), ("MemoryPressure", "True"), ("PIDPressure", "True")], json!([]), false),
                None,
                Some(vec!["memory-pressure:NoSchedule", "pid-pressure:NoSchedule"]),
            ),
            (node(&[("Ready", "Unknown")], json!([]), false), None, Some(vec!["unreachable:NoSchedule"])),
            (
                node(&[("Ready", "True")], json!([own, taint(UNREACHABLE, "NoSchedule"), taint(UNREACHABLE, "NoExecute")]), false),
                None,
                Some(vec!["example.com/mine:NoSchedule"]),
            ),
            (
                node(&[("Ready", "False")], json!([taint(UNREACHABLE, "NoExecute")]), false),
                Some(NOT_READY),
                Some(vec!["not-ready:NoSchedule", "not-ready:NoExecute"]),
            ),
            (node(&[], json!([taint(NOT_READY, "NoSchedule")]), false), None, None),
        ];
        for (node, no_execute, expected) in cases {
            let expected = expected.map(|taints| taints.into_iter().map(str::to_owned).collect());
            assert_eq!(planned_keys(planned(&node, no_execute, now)), expected, "{node:?}");
        }
    }
}
