//! Writes fields into JSON values whose parents may be missing.

use serde_json::{Map, Value};

/// Sets the field at a path. Missing parents are created, and parents that are not maps are replaced by maps.
pub fn set(value: &mut Value, path: &[&str], new: impl Into<Value>) {
    let mut at = value;
    for name in path {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        let Value::Object(map) = at else { return };
        at = map.entry(*name).or_insert(Value::Null);
    }
    *at = new.into();
}

/// The value at a path.
pub fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |at, name| at.get(name))
}

/// The value at a path, to change it.
pub fn at_mut<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |at, name| at.get_mut(name))
}

/// The text at a path; empty when there is none.
pub fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// The value as Go prints a map (`%+v`).
pub fn go_text(value: &Value) -> String {
    let all = |parts: Vec<String>| parts.join(" ");
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(list) => format!("[{}]", all(list.iter().map(go_text).collect())),
        Value::Object(map) => {
            let mut fields: Vec<_> = map.iter().collect();
            fields.sort_by_key(|(name, _)| name.as_str());
            format!("map[{}]", all(fields.into_iter().map(|(name, value)| format!("{name}:{}", go_text(value))).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_missing_is_made() {
        let mut value = json!({"a": 1});
        set(&mut value, &["a", "b"], "c");
        set(&mut value, &["d"], 2);
        assert_eq!(value, json!({"a": {"b": "c"}, "d": 2}));
        assert_eq!((text(&value, &["a", "b"]), text(&value, &["d", "e"])), ("c", ""));
    }

    #[test]
    fn maps_are_printed_as_go_does() {
        let value = json!({"spec": {"replicas": 2, "list": ["a", {"b": true}], "gone": null}});
        assert_eq!(go_text(&value), "map[spec:map[gone:<nil> list:[a map[b:true]] replicas:2]]");
    }
}
