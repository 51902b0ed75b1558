//! Patches: an object and a patch, as two documents.

use api_model::meta;
use api_rules::apply::{self, Target, Typing, Writer};
use api_rules::{FieldValidation, patch};
use serde_json::{Value, json};

use super::bodies::kind_of;
use super::{decoded, documents, is_readable};

/// Maximum size of a result, in bytes: the original, the patch, and the bytes that copies and moves may add.
const RESULT_LEN_MAX: usize = 4 * patch::COPIED_BYTES_MAX;

fn object_and_patch(input: &[u8]) -> Option<(Value, Value)> {
    match documents(input)[..] {
        [object, patch, ..] => Some((decoded(object)?, decoded(patch)?)),
        _ => None,
    }
}

/// JSON patch.
pub fn json(input: &[u8]) {
    let Some((object, patch)) = object_and_patch(input) else { return };
    assert_eq!(patch::json(&object, &json!([])).as_ref(), Ok(&object), "no operations, no change");
    let Ok(patched) = patch::json(&object, &patch) else { return };
    is_readable(&patched);
    assert!(patched.to_string().len() <= RESULT_LEN_MAX);
    assert_eq!(patch::json(&object, &patch), Ok(patched), "the same again");
}

/// JSON merge patch.
pub fn merge(input: &[u8]) {
    let Some((object, patch)) = object_and_patch(input) else { return };
    if object.is_object() {
        assert_eq!(patch::merge(&object, &json!({})).as_ref(), Ok(&object), "nothing stated, nothing changed");
    }
    let Ok(patched) = patch::merge(&object, &patch) else { return };
    is_readable(&patched);
    assert_eq!(patch::merge(&patched, &patch).as_ref(), Ok(&patched), "what is merged is merged");
}

/// Strategic merge patch, with the schema of the object's kind.
pub fn strategic(input: &[u8]) {
    let Some((object, patch)) = object_and_patch(input) else { return };
    let Some(schema) = api_schema::of_kind(kind_of(&object)) else { return };
    if object.is_object() {
        assert_eq!(patch::strategic(schema, &object, &json!({})).as_ref(), Ok(&object), "nothing stated, nothing changed");
    }
    let Ok(patched) = patch::strategic(schema, &object, &patch) else { return };
    is_readable(&patched);
    assert_eq!(patch::strategic(schema, &object, &patch), Ok(patched), "the same again");
}

/// Server-side apply: an object, and the configurations that two managers apply to it.
pub fn apply(input: &[u8]) {
    let documents = documents(input);
    let mut configs = documents.iter().filter_map(|document| decoded(document)).filter(Value::is_object);
    let Some(first) = configs.next() else { return };
    let kind = kind_of(&first);
    let target = Target::new(kind, None);
    let mut live: Option<Value> = None;
    for (at, config) in std::iter::once(first).chain(configs).take(4).enumerate() {
        let Some(config) = fitting(kind, config) else { continue };
        let writer = Writer { manager: ["a", "b"][at % 2], now: "2026-01-01T00:00:00Z" };
        if let Err(apply::ApplyConflict(conflicts)) = apply::apply(&target, live.as_ref(), &config, writer, false) {
            assert!(!conflicts.each().is_empty() && live.is_some(), "a conflict is with somebody");
        }
        let applied = apply::apply(&target, live.as_ref(), &config, writer, true).unwrap_or_else(|error| panic!("forced: {error}"));
        is_readable(&applied);
        let again = apply::apply(&target, Some(&applied), &config, writer, false)
            .unwrap_or_else(|error| panic!("one's own is no conflict: {error}: {applied} {config}"));
        // A manager that states no field owns no field. The next apply to an object without owners is treated as the
        // first one. Upstream cannot distinguish these cases either.
        let is_owned = !applied["metadata"]["managedFields"].is_null();
        assert!(!is_owned || without_empty(&again) == without_empty(&applied), "what is applied is applied: {config}\n{again}\n{applied}");
        live = Some(applied);
    }
}

/// A value without empty maps and lists. An apply that gives up the last field of a map removes the map; the next one
/// adds an empty map.
fn without_empty(value: &Value) -> Value {
    let is_empty = |value: &Value| value.as_object().is_some_and(|map| map.is_empty()) || value.as_array().is_some_and(Vec::is_empty);
    match value {
        Value::Object(fields) => {
            let cleaned = fields.iter().map(|(key, value)| (key.clone(), without_empty(value)));
            Value::Object(cleaned.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_empty).collect()),
        other => other.clone(),
    }
}

/// A configuration in the form that an apply expects.
fn fitting(kind: &api_model::kind::Kind, mut config: Value) -> Option<Value> {
    meta::set(&mut config, "managedFields", Value::Null);
    if let Some(metadata) = config.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    if apply::complaint(Typing::new(kind), &config).is_some() {
        return None;
    }
    api_rules::check_fields(kind, &mut config, &[], FieldValidation::Ignore).ok()?;
    Some(config)
}
