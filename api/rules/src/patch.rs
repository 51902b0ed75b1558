//! The patch kinds that act on values: JSON patch (RFC 6902), JSON merge patch (RFC 7386) and
//! strategic merge patch. Each is a pure function from an object and a patch to a new object; what
//! the result must be is for field checks and validation to say afterwards. Server-side apply is
//! no patch in this sense and is [`apply`](crate::apply).
//!
//! Bounds are upstream's: 10,000 operations, and 3 MiB of growth by `copy`.

mod strategic;

use api_schema::Schema;
use json_patch::{PatchErrorKind, PatchOperation};
use serde_json::Value;
use thiserror::Error;

/// Most operations in one JSON patch.
pub const OPERATIONS_MAX: usize = 10_000;
/// Most bytes that `copy` operations may add, and the largest result (upstream's request body limit).
pub const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Deepest nesting that a patch may leave. What is stored must be readable again, which ends at 127
/// levels, and a tower of moves must not exhaust the stack of whoever walks it.
const DEPTH_MAX: usize = 120;

/// Why a patch was refused.
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
    /// The patch is well-formed but cannot be applied, for example because nothing stands at a path: 422
    /// Invalid. Upstream hides this text behind "the server rejected our request due to an error in
    /// our request".
    #[error("{0}")]
    NotApplicable(String),
    /// A `test` failed: to clients the same.
    #[error("{0}")]
    TestFailed(String),
}

/// Applies a JSON patch.
pub fn json(original: &Value, patch: &Value) -> Result<Value, PatchError> {
    let count = patch.as_array().map_or(0, Vec::len);
    if count > OPERATIONS_MAX {
        return Err(PatchError::TooManyOperations(count));
    }
    let patch: json_patch::Patch =
        serde_json::from_value(patch.clone()).map_err(|error| PatchError::Malformed(format!("error decoding patch: {error}")))?;
    let mut object = original.clone();
    let mut copied = 0_usize;
    let mut nesting = Nesting::of(original);
    for operation in &patch.0 {
        if let PatchOperation::Copy(copy) = operation {
            copied = copied.saturating_add(object.pointer(copy.from.as_str()).map_or(0, size));
            if copied > COPIED_BYTES_MAX {
                return Err(PatchError::CopyTooLarge(copied));
            }
        }
        json_patch::patch_unsafe(&mut object, std::slice::from_ref(operation)).map_err(|error| refusal(&error.kind, operation))?;
        nesting.after(operation, &object)?;
    }
    Ok(object)
}

fn refusal(kind: &PatchErrorKind, operation: &PatchOperation) -> PatchError {
    let message = format!("{kind} in path {:?}", operation.path().as_str());
    match kind {
        PatchErrorKind::TestFailed => PatchError::TestFailed(message),
        _ => PatchError::NotApplicable(message),
    }
}

/// How deep an object is at most. Measured only where the operations so far could have made it too
/// deep, since measuring costs as much as the object is large.
struct Nesting {
    at_most: usize,
    /// What was stored deeper than the bound may stay as deep.
    limit: usize,
}

impl Nesting {
    fn of(object: &Value) -> Self {
        let depth = depth(object);
        Self { at_most: depth, limit: depth.max(DEPTH_MAX) }
    }

    fn after(&mut self, operation: &PatchOperation, object: &Value) -> Result<(), PatchError> {
        let moved = match operation {
            PatchOperation::Add(add) => depth(&add.value),
            PatchOperation::Replace(replace) => depth(&replace.value),
            PatchOperation::Move(_) | PatchOperation::Copy(_) => self.at_most,
            PatchOperation::Remove(_) | PatchOperation::Test(_) => return Ok(()),
        };
        let above = operation.path().as_str().matches('/').count();
        self.at_most = self.at_most.max(above.saturating_add(moved));
        if self.at_most > self.limit {
            self.at_most = depth(object);
        }
        if self.at_most > self.limit {
            return Err(PatchError::NotApplicable(format!("the object would be nested deeper than {} levels", self.limit)));
        }
        Ok(())
    }
}

/// Levels of lists and maps.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or_default(),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// Applies a JSON merge patch.
pub fn merge(original: &Value, patch: &Value) -> Result<Value, PatchError> {
    if !patch.is_object() {
        return Err(PatchError::Malformed("Invalid JSON document".to_owned()));
    }
    let mut object = original.clone();
    json_patch::merge(&mut object, patch);
    Ok(object)
}

/// Applies a strategic merge patch, guided by the schema's merge keys and strategies.
pub fn strategic(schema: &Schema, original: &Value, patch: &Value) -> Result<Value, PatchError> {
    match (original, patch) {
        (Value::Object(original), Value::Object(patch)) => {
            strategic::merge_map(original.clone(), patch.clone(), Some(schema)).map(Value::Object)
        }
        _ => Err(PatchError::Malformed("Invalid JSON document".to_owned())),
    }
}

/// Bytes of a value's JSON text, near enough for a bound.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(list) => list.iter().map(|item| size(item) + 1).sum::<usize>() + 2,
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + size(value) + 4).sum::<usize>() + 2,
    }
}

#[cfg(test)]
mod tests;
