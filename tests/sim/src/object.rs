//! Reads objects as JSON.

use serde_json::Value;

/// A string in an object; empty when it is absent.
pub fn text<'o>(object: &'o Value, pointer: &str) -> &'o str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A number in an object.
pub fn number(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

/// The owner that controls an object.
pub fn controller(object: &Value) -> Option<&Value> {
    object["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
}

/// The UID of the owner that controls an object.
pub fn controller_uid(object: &Value) -> Option<&str> {
    controller(object).map(|owner| text(owner, "/uid"))
}

pub fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Whether a Pod has ended.
pub fn is_terminal(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Whether a Pod runs or may still run, and is not to end.
pub fn is_active(pod: &Value) -> bool {
    !is_deleting(pod) && !is_terminal(pod)
}

/// A condition in a status.
pub fn condition<'o>(object: &'o Value, kind: &str) -> Option<&'o Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

pub fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True")
}

/// Whether an object has the labels of a selector with `matchLabels` alone.
pub fn is_selected(object: &Value, selector: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    selector["matchLabels"].as_object().is_some_and(|wanted| wanted.iter().all(|(key, value)| labels[key] == *value))
}

/// The annotation of a PodGroup of which a Pod fits nowhere.
pub const IMPOSSIBLE: &str = "sim/impossible";

/// Whether a Pod of the PodGroup fits nowhere.
pub fn is_impossible(group: &Value) -> bool {
    group["metadata"]["annotations"].get(IMPOSSIBLE).is_some()
}

/// The name of the PodGroup that a Pod belongs to.
pub fn pod_group(pod: &Value) -> Option<&str> {
    pod.pointer("/spec/schedulingGroup/podGroupName").and_then(Value::as_str)
}

/// An amount of CPU in thousandths of a core.
pub fn thousandths(quantity: &str) -> i64 {
    match quantity.strip_suffix('m') {
        Some(milli) => milli.parse().unwrap_or(0),
        None => quantity.parse::<i64>().unwrap_or(0) * 1000,
    }
}
