//! What becomes of a bootstrap object that exists already: it gets what it lacks and keeps the rest.

use api_model::meta;
use serde_json::{Map, Value};

use super::{AUTOUPDATE, put};
use crate::authorize::rule::Rule;

/// What to store in place of an existing bootstrap object: the object with the rules, subjects,
/// labels and annotations that it lacks. `None` where it lacks nothing or is not to be touched. A
/// binding whose role changed is to be deleted and made anew, which the caller sees by comparing
/// `roleRef`.
pub fn reconcile(existing: &Value, wanted: &Value) -> Option<Value> {
    let annotation = existing.get("metadata").and_then(|m| m.get("annotations")).and_then(|a| a.get(AUTOUPDATE));
    if annotation.and_then(Value::as_str) == Some("false") {
        return None;
    }
    let mut merged = existing.clone();
    for field in ["labels", "annotations"] {
        merge_map(&mut merged, wanted, field);
    }
    if existing.get("roleRef") != wanted.get("roleRef") {
        put(&mut merged, "roleRef", wanted.get("roleRef").cloned().unwrap_or_default());
    }
    let aggregates = wanted.get("aggregationRule").is_some();
    if aggregates && existing.get("aggregationRule") != wanted.get("aggregationRule") {
        put(&mut merged, "aggregationRule", wanted.get("aggregationRule").cloned().unwrap_or_default());
    }
    if !aggregates {
        add_missing_rules(&mut merged, wanted);
    }
    add_missing_subjects(&mut merged, wanted);
    (merged != *existing).then_some(merged)
}

fn merge_map(merged: &mut Value, wanted: &Value, field: &str) {
    let missing = wanted.get("metadata").and_then(|m| m.get(field)).and_then(Value::as_object).cloned().unwrap_or_default();
    let Some(metadata) = meta::metadata_mut(merged) else { return };
    let map = metadata.entry(field).or_insert_with(|| Value::Object(Map::new()));
    if let Some(map) = map.as_object_mut() {
        for (key, value) in missing {
            map.entry(key).or_insert(value);
        }
    }
}

fn add_missing_rules(merged: &mut Value, wanted: &Value) {
    let have = Rule::of_role(merged);
    let lacks = |rule: &Value| Rule::from_value(rule).singles().iter().any(|single| !have.iter().any(|r| r.covers(single)));
    let missing: Vec<Value> = items(wanted, "rules").iter().filter(|r| lacks(r)).cloned().collect();
    append(merged, "rules", missing);
}

fn add_missing_subjects(merged: &mut Value, wanted: &Value) {
    let same = |a: &Value, b: &Value| ["kind", "name", "namespace"].iter().all(|f| a.get(f) == b.get(f));
    let missing: Vec<Value> =
        items(wanted, "subjects").iter().filter(|s| !items(merged, "subjects").iter().any(|o| same(o, s))).cloned().collect();
    append(merged, "subjects", missing);
}

fn items<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn append(object: &mut Value, field: &str, values: Vec<Value>) {
    if values.is_empty() {
        return;
    }
    match object.get_mut(field).and_then(Value::as_array_mut) {
        Some(list) => list.extend(values),
        None => put(object, field, Value::Array(values)),
    }
}
