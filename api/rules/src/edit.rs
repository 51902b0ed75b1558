//! Small edits of objects, for defaulting and strategies.

use api_model::zero::is_zero;
use serde_json::{Map, Value};

/// The fields of an object.
pub type Fields = Map<String, Value>;

/// Sets a field that is absent: for fields that are pointers upstream, where zero is a value.
pub fn fill_absent(fields: &mut Fields, name: &str, value: impl Into<Value>) {
    if fields.get(name).is_none_or(Value::is_null) {
        fields.insert(name.to_owned(), value.into());
    }
}

/// Sets a field that is absent or zero: for plain fields upstream, where zero means unset.
pub fn fill(fields: &mut Fields, name: &str, value: impl Into<Value>) {
    if fields.get(name).is_none_or(is_zero) {
        fields.insert(name.to_owned(), value.into());
    }
}

/// The text of a field; empty when absent.
pub fn text<'a>(fields: &'a Fields, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The field as an object, if it is one.
pub fn inner<'a>(fields: &'a mut Fields, name: &str) -> Option<&'a mut Fields> {
    fields.get_mut(name).and_then(Value::as_object_mut)
}

/// The field as an object, created when absent; `None` where it has another type.
pub fn make<'a>(fields: &'a mut Fields, name: &str) -> Option<&'a mut Fields> {
    fill_absent(fields, name, Value::Object(Map::new()));
    inner(fields, name)
}

/// The objects in a field that is a list.
pub fn each<'a>(fields: &'a mut Fields, name: &str) -> impl Iterator<Item = &'a mut Fields> + use<'a> {
    fields.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Whether a field that is a list has no elements, or is absent.
pub fn is_list_empty(fields: &Fields, name: &str) -> bool {
    fields.get(name).and_then(Value::as_array).is_none_or(Vec::is_empty)
}

/// The object's `spec`, created when absent.
pub fn spec(object: &mut Value) -> Option<&mut Fields> {
    object.as_object_mut().and_then(|fields| make(fields, "spec"))
}
