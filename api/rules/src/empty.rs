//! Lists and maps without entries. Upstream stores built-in kinds in protobuf, which does not tell them from
//! fields that are absent, and clients in Go leave them out of what they send. So whether they are there or not is
//! no difference: who writes back what was read writes nothing, and an applier with `env: []` and a controller
//! that updates the same object do not undo each other's work for ever.

use api_model::kind::Kind;
use api_schema::{Schema, Shape};
use serde_json::{Map, Value};

/// Writes what has no entries as the old object has it: there or absent. Custom resources are stored as they come.
pub fn settle_empty(kind: &Kind, new: &mut Value, old: &Value) {
    if kind.custom.is_none()
        && let Some(schema) = api_schema::of(kind)
    {
        walk(schema, new, old);
    }
}

fn walk(schema: &Schema, new: &mut Value, old: &Value) {
    match (schema.shape(), new, old) {
        (Shape::Object, Value::Object(new), Value::Object(old)) => fields(schema, new, old),
        (Shape::Map(values), Value::Object(new), Value::Object(old)) => {
            for (key, value) in new {
                if let Some(old) = old.get(key) {
                    walk(values, value, old);
                }
            }
        }
        // Of elements that are not the same, what is settled makes no difference either.
        (Shape::Array(items), Value::Array(new), Value::Array(old)) if new.len() == old.len() => {
            new.iter_mut().zip(old).for_each(|(new, old)| walk(items, new, old));
        }
        _ => {}
    }
}

fn fields(schema: &Schema, new: &mut Map<String, Value>, old: &Map<String, Value>) {
    let is_empty = |name: &str, value: &Value| match value {
        Value::Array(list) => list.is_empty() && schema.property(name).is_some_and(|field| matches!(field.shape(), Shape::Array(_))),
        Value::Object(map) => map.is_empty() && schema.property(name).is_some_and(|field| matches!(field.shape(), Shape::Map(_))),
        _ => false,
    };
    new.retain(|name, value| old.contains_key(name) || !is_empty(name, value));
    for (name, old) in old {
        match new.get_mut(name) {
            Some(value) => {
                if let Some(field) = schema.property(name) {
                    walk(field, value, old);
                }
            }
            None if is_empty(name, old) => {
                new.insert(name.clone(), old.clone());
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use api_model::kind::find_by_kind;
    use serde_json::json;

    use super::*;

    fn settled(api_version: &str, kind: &str, mut new: Value, old: &Value) -> Value {
        settle_empty(find_by_kind(api_version, kind).expect("a kind"), &mut new, old);
        new
    }

    #[test]
    fn what_is_empty_stays_as_it_was() {
        let pod = |container: Value, labels: Value| json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
        let with = pod(json!({"name": "c", "env": [], "resources": {"limits": {}}}), json!({"a": "b"}));
        let without = pod(json!({"name": "c", "resources": {}}), json!({"a": "b"}));
        assert_eq!(settled("v1", "Pod", without.clone(), &with), with);
        assert_eq!(settled("v1", "Pod", with.clone(), &without), without);
        // What had entries is emptied, and the other way round.
        let full = pod(json!({"name": "c", "env": [{"name": "A"}], "resources": {"limits": {"cpu": "1"}}}), json!({}));
        assert_eq!(settled("v1", "Pod", full.clone(), &with), full);
        assert_eq!(settled("v1", "Pod", with.clone(), &full), with);
    }

    #[test]
    fn what_is_no_list_and_no_map_is_left_alone() {
        let volume = |source: Value| json!({"spec": {"containers": [], "securityContext": source}});
        assert_eq!(settled("v1", "Pod", volume(json!({})), &json!({"spec": {"containers": []}})), volume(json!({})));
        let data = |data: Value| json!({"revision": 1, "data": data});
        let raw = data(json!({"a": []}));
        assert_eq!(settled("apps/v1", "ControllerRevision", raw.clone(), &data(json!({}))), raw);
    }
}
