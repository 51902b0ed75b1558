//! Reads fields of objects for cells. As in the Go structs that upstream prints, fields that are absent or have a wrong
//! type count as empty.

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::duration;

/// The value at a dotted path.
pub(crate) fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, field| value.get(field)).filter(|value| !value.is_null())
}

/// The text at a path; empty when absent.
pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// The text at a path, or `other` when it is empty.
pub(crate) fn text_or(object: &Value, path: &str, other: &str) -> Value {
    Value::from(match text(object, path) {
        "" => other,
        text => text,
    })
}

/// The whole number at a path; 0 when absent.
pub(crate) fn number(object: &Value, path: &str) -> i64 {
    at(object, path).and_then(Value::as_i64).unwrap_or_default()
}

/// The boolean at a path, or `other` when it is absent.
pub(crate) fn flag_or(object: &Value, path: &str, other: bool) -> bool {
    at(object, path).and_then(Value::as_bool).unwrap_or(other)
}

/// The list at a path; empty when absent.
pub(crate) fn list<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The texts in the list at a path.
pub(crate) fn texts<'a>(object: &'a Value, path: &str) -> Vec<&'a str> {
    list(object, path).iter().filter_map(Value::as_str).collect()
}

/// The map at a path.
pub(crate) fn map<'a>(object: &'a Value, path: &str) -> Option<&'a Map<String, Value>> {
    at(object, path).and_then(Value::as_object)
}

/// How many entries the map at a path has.
pub(crate) fn len(object: &Value, path: &str) -> usize {
    map(object, path).map_or(0, Map::len)
}

/// A quantity, number or text as it is written in the object.
pub(crate) fn plain(value: Option<&Value>, absent: &str) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => absent.to_owned(),
    }
}

/// The name cell.
pub(crate) fn name(object: &Value) -> Value {
    api_model::meta::name(object).into()
}

/// The age cell.
pub(crate) fn age(object: &Value, now: Timestamp) -> Value {
    since(object, "metadata.creationTimestamp", now).into()
}

/// The creation time cell of kinds without a printer upstream.
pub(crate) fn created_at(object: &Value) -> Value {
    api_model::meta::text(object, "creationTimestamp").into()
}

/// The time at a path.
pub(crate) fn time(object: &Value, path: &str) -> Option<Timestamp> {
    text(object, path).parse().ok()
}

/// The time since the time at a path.
pub(crate) fn since(object: &Value, path: &str, now: Timestamp) -> String {
    time(object, path).map_or_else(|| "<unknown>".to_owned(), |then| duration::human(now.duration_since(then)))
}

/// The condition of that type in the list at a path.
pub(crate) fn condition<'a>(object: &'a Value, path: &str, kind: &str) -> Option<&'a Value> {
    list(object, path).iter().find(|condition| text(condition, "type") == kind)
}

/// Whether that condition of `status.conditions` is true.
pub(crate) fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, "status.conditions", kind).is_some_and(|condition| text(condition, "status") == "True")
}

/// Names and images of the containers at a path, each separated by commas.
pub(crate) fn containers(object: &Value, path: &str) -> (Value, Value) {
    let containers = list(object, path);
    let join = |field: &str| containers.iter().map(|container| text(container, field)).collect::<Vec<_>>().join(",");
    (join("name").into(), join("image").into())
}

/// At most `max` items, separated by `separator`, and the number of the others.
pub(crate) fn some_of(items: &[String], max: usize, separator: &str) -> String {
    let first = items.get(..max).unwrap_or(items).join(separator);
    if items.len() > max { format!("{first} + {} more...", items.len() - max) } else { first }
}
