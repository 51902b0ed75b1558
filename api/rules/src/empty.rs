//! Removes empty lists and maps. Upstream's types omit them when they are serialized, so an empty field equals an absent
//! one: writing an object back as it was read changes nothing, and an applier with `env: []` and a controller that updates
//! the same object do not undo each other's changes for ever. A field that the kind requires stays.

use api_model::kind::Kind;
use api_schema::{Schema, Shape};
use serde_json::{Map, Value};

/// Removes empty lists and maps from an object of a built-in kind. Custom resources keep theirs.
pub fn drop_empty(kind: &Kind, object: &mut Value) {
    if kind.custom.is_none()
        && let Some(schema) = api_schema::of_kind(kind)
    {
        walk(schema, object);
    }
}

fn walk(schema: &Schema, value: &mut Value) {
    match (schema.shape(), value) {
        (Shape::Object, Value::Object(object)) => fields(schema, object),
        (Shape::Map(values), Value::Object(map)) => map.values_mut().for_each(|value| walk(values, value)),
        (Shape::Array(items), Value::Array(list)) => list.iter_mut().for_each(|item| walk(items, item)),
        _ => {}
    }
}

fn fields(schema: &Schema, object: &mut Map<String, Value>) {
    object.retain(|name, value| {
        let Some(field) = schema.property(name) else { return true };
        walk(field, value);
        let is_empty = match (field.shape(), value) {
            (Shape::Array(_), Value::Array(list)) => list.is_empty(),
            (Shape::Map(_), Value::Object(map)) => map.is_empty(),
            _ => false,
        };
        // An empty list of managers clears them.
        !is_empty || schema.is_required(name) || name == "managedFields"
    });
}

#[cfg(test)]
mod tests {
    use api_model::kind::find_by_kind;
    use serde_json::json;

    use super::*;

    fn dropped(api_version: &str, kind: &str, mut object: Value) -> Value {
        drop_empty(find_by_kind(api_version, kind).expect("a kind"), &mut object);
        object
    }

    #[test]
    fn what_has_no_entries_goes() {
        let pod = json!({"metadata": {"labels": {}, "finalizers": [], "annotations": {"a": ""}},
            "spec": {"containers": [{"name": "c", "env": [], "resources": {"limits": {}}}], "nodeSelector": {}, "tolerations": []}});
        let wanted = json!({"metadata": {"annotations": {"a": ""}}, "spec": {"containers": [{"name": "c", "resources": {}}]}});
        assert_eq!(dropped("v1", "Pod", pod), wanted);
        let selector = json!({"spec": {"namespaceSelector": {"matchLabels": {}}, "rules": []}});
        assert_eq!(dropped("networking.k8s.io/v1", "NetworkPolicy", selector.clone()), selector, "no such fields");
    }

    #[test]
    fn what_is_no_list_and_no_map_is_left_alone() {
        let pod = json!({"spec": {"containers": [], "securityContext": {}, "volumes": [{"name": "v", "emptyDir": {}}]}});
        assert_eq!(dropped("v1", "Pod", pod.clone()), pod, "containers are required");
        let policy = json!({"spec": {"podSelector": {}, "ingress": [{}]}});
        assert_eq!(dropped("networking.k8s.io/v1", "NetworkPolicy", policy.clone()), policy);
        let raw = json!({"revision": 1, "data": {"a": []}});
        assert_eq!(dropped("apps/v1", "ControllerRevision", raw.clone()), raw);
    }
}
