//! The scale subresource: reads an `autoscaling/v1` Scale from a workload and writes it back.

use api_model::kind::Kind;
use serde_json::{Map, Value, json};

/// The Scale of an object; `None` where the kind has none.
pub fn read(kind: &Kind, object: &Value) -> Option<Value> {
    kind.subresource("scale")?;
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.get("metadata").and_then(|m| m.get(field)) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let paths = kind.custom.as_ref().and_then(|custom| custom.scale.as_ref());
    let (spec_replicas, status_replicas) =
        paths.map_or(("spec.replicas", "status.replicas"), |paths| (paths.spec_replicas.as_str(), paths.status_replicas.as_str()));
    let replicas = |path: &str| at(object, path).and_then(Value::as_i64);
    let mut status = json!({"replicas": replicas(status_replicas).unwrap_or(0)});
    let selector = match paths {
        None => selector(object),
        Some(paths) => at(object, &paths.label_selector).and_then(Value::as_str).map(str::to_owned),
    };
    if let (Some(selector), Some(map)) = (selector, status.as_object_mut()) {
        map.insert("selector".to_owned(), selector.into());
    }
    Some(json!({
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": metadata,
        "spec": replicas(spec_replicas).filter(|count| *count != 0).map_or_else(|| json!({}), |count| json!({"replicas": count})),
        "status": status,
    }))
}

/// Writes a Scale's `spec.replicas` into an object, and its `resourceVersion` if any, so that the update conflicts when the
/// object has changed.
pub fn write(kind: &Kind, object: &mut Value, scale: &Value) {
    if kind.subresource("scale").is_none() {
        return;
    }
    let replicas = scale.get("spec").and_then(|spec| spec.get("replicas")).and_then(Value::as_i64).unwrap_or(0);
    match kind.custom.as_ref().and_then(|custom| custom.scale.as_ref()) {
        Some(paths) => put(object, &paths.spec_replicas, replicas.into()),
        None => {
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                spec.insert("replicas".to_owned(), replicas.into());
            }
        }
    }
    let version = api_model::meta::resource_version(scale);
    if !version.is_empty() {
        api_model::meta::set(object, "resourceVersion", version);
    }
}

/// The value of a dotted path; `None` for an empty path.
fn at<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(object, |at, name| at.get(name))
}

/// Sets the value of a dotted path, and creates the objects on the way.
fn put(object: &mut Value, path: &str, value: Value) {
    let Some(map) = object.as_object_mut() else { return };
    match path.split_once('.') {
        None => drop(map.insert(path.to_owned(), value)),
        Some((first, rest)) => put(map.entry(first).or_insert_with(|| json!({})), rest, value),
    }
}

/// The replicas of a custom resource with a scale subresource must be a count.
pub(crate) fn validate_custom(kind: &Kind, object: &Value, checks: &mut crate::checks::Checks) {
    let Some(paths) = kind.custom.as_ref().and_then(|custom| custom.scale.as_ref()) else { return };
    let root = crate::at::At::root(object);
    for path in [&paths.spec_replicas, &paths.status_replicas] {
        let replicas = root.find(path);
        if replicas.int() < 0 {
            checks.invalid(&replicas, "should be a non-negative integer");
        } else if replicas.int() > i64::from(i32::MAX) {
            checks.invalid(&replicas, format!("should be less than or equal to {}", i32::MAX));
        }
    }
}

/// Validates a Scale: `spec.replicas` must not be negative.
pub fn validate(scale: &Value) -> Vec<api_model::field::FieldError> {
    let mut checks = crate::checks::Checks::default();
    checks.not_negative(&crate::at::At::root(scale).find("spec.replicas"));
    checks.into_errors()
}

/// The selector as a query string, which autoscalers need. The selector of a ReplicationController is a plain map.
fn selector(object: &Value) -> Option<String> {
    let selector = object.get("spec")?.get("selector")?.as_object()?;
    let is_label_selector =
        selector.get("matchLabels").is_some_and(Value::is_object) || selector.get("matchExpressions").is_some_and(Value::is_array);
    let equalities = |labels: &Map<String, Value>| -> Vec<(String, String)> {
        labels.iter().map(|(key, value)| (key.clone(), format!("{key}={}", value.as_str().unwrap_or_default()))).collect()
    };
    if !is_label_selector {
        return Some(join(equalities(selector)));
    }
    let mut terms = selector.get("matchLabels").and_then(Value::as_object).map(equalities).unwrap_or_default();
    for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = expression.get("key").and_then(Value::as_str).unwrap_or_default();
        let mut values: Vec<&str> =
            expression.get("values").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let term = match expression.get("operator").and_then(Value::as_str).unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        terms.push((key.to_owned(), term));
    }
    Some(join(terms))
}

fn join(mut terms: Vec<(String, String)>) -> String {
    terms.sort();
    terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_reads_and_writes_replicas_alone() {
        let kind = api_model::kind::find("apps", "deployments").expect("served");
        let mut object = json!({
            "metadata": {"name": "web", "namespace": "default", "resourceVersion": "7", "labels": {"a": "b"}},
            "spec": {"replicas": 3, "paused": true, "selector": {"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["y", "x"]}]}},
            "status": {"replicas": 2},
        });
        insta::assert_json_snapshot!(read(kind, &object));
        write(kind, &mut object, &json!({"metadata": {"resourceVersion": "6"}, "spec": {"replicas": 5}}));
        assert_eq!(object.pointer("/spec/replicas"), Some(&json!(5)));
        assert_eq!(object.pointer("/metadata/resourceVersion"), Some(&json!("6")));
        assert!(read(api_model::kind::find("", "pods").expect("served"), &object).is_none());
    }

    #[test]
    fn rejects_negative_replicas() {
        let errors = validate(&json!({"spec": {"replicas": -1}}));
        assert_eq!(api_model::field::aggregate(&errors), "spec.replicas: Invalid value: -1: must be greater than or equal to 0");
    }
}
