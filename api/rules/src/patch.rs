//! The patch kinds that act on values: JSON patch (RFC 6902), JSON merge patch (RFC 7386) and
//! strategic merge patch. Each is a pure function from an object and a patch to a new object. Field checks and validation
//! check the result afterwards. Server-side apply works differently and is in [`apply`](crate::apply).
//!
//! The limits are upstream's: 10,000 operations, and 3 MiB of growth by `copy`.

mod operations;
mod strategic;

use api_model::go::json_type;
use api_schema::Schema;
use serde_json::{Map, Value};
use thiserror::Error;

/// Most operations in one JSON patch.
pub const OPERATIONS_MAX: usize = 10_000;
/// Most bytes that `copy` operations may add, and the largest result (upstream's request body limit).
pub const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

/// A patch was not applied.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PatchError {
    /// The patch itself is malformed: 400 BadRequest.
    #[error("{0}")]
    Malformed(String),
    /// Too many operations: 413 RequestEntityTooLarge.
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {0}")]
    TooManyOperations(usize),
    /// `copy` operations would make the object too large: 413 RequestEntityTooLarge.
    #[error("Unable to complete the copy, the accumulated size increase of copy is {0}, exceeding the limit {COPIED_BYTES_MAX}")]
    CopyTooLarge(usize),
    /// The patch is well-formed but cannot be applied, for example because a path does not exist: 422
    /// Invalid. Upstream hides this text behind "the server rejected our request due to an error in
    /// our request".
    #[error("{0}")]
    NotApplicable(String),
    /// A `test` failed. The response is the same.
    #[error("{0}")]
    TestFailed(String),
}

/// Applies a JSON patch.
pub fn json(original: &Value, patch: &Value) -> Result<Value, PatchError> {
    let operations = operations::decoded(patch)?;
    if operations.len() > OPERATIONS_MAX {
        return Err(PatchError::TooManyOperations(operations.len()));
    }
    operations::apply(original, &operations)
}

/// Applies a JSON merge patch. Beyond RFC 7386, and as upstream, it removes nulls in the maps of lists too.
pub fn merge(original: &Value, patch: &Value) -> Result<Value, PatchError> {
    let patch = match patch {
        Value::Object(patch) => patch,
        Value::Null => return Err(PatchError::Malformed("Invalid JSON Patch".to_owned())),
        other => return Err(PatchError::Malformed(format!("error decoding patch: {}", no_map(other)))),
    };
    let mut object = original.as_object().cloned().unwrap_or_default();
    merge_map(&mut object, patch);
    Ok(Value::Object(object))
}

fn merge_map(object: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        match (object.get_mut(key), value) {
            (_, Value::Null) => drop(object.remove(key)),
            (Some(Value::Object(object)), Value::Object(patch)) => merge_map(object, patch),
            _ => drop(object.insert(key.clone(), without_nulls(value))),
        }
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            map.iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(list) => list.iter().map(without_nulls).collect(),
        scalar => scalar.clone(),
    }
}

/// Applies a strategic merge patch, guided by the schema's merge keys and strategies.
pub fn strategic(schema: &Schema, original: &Value, patch: &Value) -> Result<Value, PatchError> {
    match (original, patch) {
        (Value::Object(original), Value::Object(patch)) => {
            strategic::merge_map(original.clone(), patch.clone(), Some(schema)).map(Value::Object)
        }
        (_, Value::Object(_) | Value::Null) => Err(PatchError::Malformed("Invalid JSON document".to_owned())),
        (_, other) => Err(PatchError::Malformed(no_map(other))),
    }
}

/// Go's message about a patch that is not a map.
fn no_map(value: &Value) -> String {
    format!("json: cannot unmarshal {} into Go value of type map[string]interface {{}}", json_type(value))
}

#[cfg(test)]
mod tests;
