//! Reads and writes fields of objects that are JSON values.

use serde_json::{Map, Value};

/// The list at a field; empty when absent.
pub fn list<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The text at a field; empty when absent.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The text at a JSON pointer of names of fields; empty when absent.
pub fn text_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    // `Value::pointer` allocates for each part, because a part may be escaped. Names of fields are not.
    let value = pointer.split('/').skip(1).try_fold(object, |at, field| at.get(field));
    value.and_then(Value::as_str).unwrap_or_default()
}

/// The map at a field.
pub fn map<'a>(object: &'a Value, field: &str) -> Option<&'a Map<String, Value>> {
    object.get(field).and_then(Value::as_object)
}

/// Whether a field is present and not null.
pub fn has(object: &Value, field: &str) -> bool {
    object.get(field).is_some_and(|v| !v.is_null())
}

/// Sets a field of a map; does nothing for other values.
pub fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(map) = object.as_object_mut() {
        map.insert(field.to_owned(), value.into());
    }
}

/// The map at a field, created if absent; `None` if the object is no map.
pub fn map_mut<'a>(object: &'a mut Value, field: &str) -> Option<&'a mut Map<String, Value>> {
    let entry = object.as_object_mut()?.entry(field).or_insert_with(|| Value::Object(Map::new()));
    if entry.is_null() {
        *entry = Value::Object(Map::new());
    }
    entry.as_object_mut()
}

/// The list at a field, created if absent; `None` if the object is no map.
pub fn list_mut<'a>(object: &'a mut Value, field: &str) -> Option<&'a mut Vec<Value>> {
    let entry = object.as_object_mut()?.entry(field).or_insert_with(|| Value::Array(Vec::new()));
    if entry.is_null() {
        *entry = Value::Array(Vec::new());
    }
    entry.as_array_mut()
}

/// An annotation; empty when absent.
pub fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get("metadata").and_then(|m| m.get("annotations")).and_then(|a| a.get(key)).and_then(Value::as_str).unwrap_or_default()
}

/// Whether an annotation is present, even with an empty value.
pub fn has_annotation(object: &Value, key: &str) -> bool {
    object.get("metadata").and_then(|m| m.get("annotations")).and_then(|a| a.get(key)).is_some()
}
