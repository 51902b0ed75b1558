//! JSON patch as upstream's library (evanphx/json-patch, version 4) applies it. Clients depend on its differences from RFC
//! 6902: an absent member tests equal to null, `replace` adds it, `copy` copies it as null, and negative indices count from
//! the end of a list.

use api_model::go::json_type;
use api_model::message::Message;
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::{COPIED_BYTES_MAX, PatchError};

/// The deepest nesting after a patch. The parser of stored objects stops at 127 levels, and code that walks an object must
/// not exhaust its stack.
pub(super) const DEPTH_MAX: usize = 120;

/// Most values that all operations together may visit to measure the nesting. The cost of one measurement is the size of
/// the object; only an object that is nested almost too deep is measured more than once.
const MEASURED_MAX: usize = 10_000_000;

/// One operation as it was sent. Missing fields are errors when the operation is applied.
#[derive(Deserialize)]
pub(super) struct Operation {
    #[serde(default)]
    op: String,
    path: Option<String>,
    from: Option<String>,
    #[serde(default)]
    value: Value,
}

/// An operation does not apply. The messages are upstream's.
#[derive(Debug, Error)]
enum Fault {
    #[error("missing value")]
    Missing,
    #[error("invalid index referenced")]
    Index,
    #[error("replace operation value must be object or array")]
    Root,
    #[error("Unexpected kind")]
    Kind,
    #[error("test failed")]
    Test,
    #[error("{0} bytes copied")]
    Copied(usize),
}

/// The operations of a patch.
///
/// # Errors
/// When the patch is not a list of operations.
pub(super) fn decoded(patch: &Value) -> Result<Vec<Operation>, PatchError> {
    decoded_as_go(patch).map_err(|why| PatchError::Malformed(format!("error decoding patch: {why}")))
}

fn decoded_as_go(patch: &Value) -> Result<Vec<Operation>, Message> {
    let unfit = |value: &Value, into: &str| Message::from(format!("json: cannot unmarshal {} into Go {into}", json_type(value)));
    let Some(list) = patch.as_array() else { return Err(unfit(patch, "value of type []handlers.jsonPatchOp")) };
    for operation in list {
        let Some(fields) = operation.as_object() else { return Err(unfit(operation, "value of type handlers.jsonPatchOp")) };
        for name in ["op", "path", "from"] {
            if let Some(value) = fields.get(name).filter(|value| !value.is_string() && !value.is_null()) {
                return Err(unfit(value, &format!("struct field jsonPatchOp.{name} of type string")));
            }
        }
    }
    Vec::deserialize(patch).map_err(|error| error.to_string().into())
}

/// The object after all operations.
///
/// # Errors
/// When an operation does not apply, or the object would become too large or too deep.
pub(super) fn apply(original: &Value, operations: &[Operation]) -> Result<Value, PatchError> {
    let mut object = original.clone();
    let mut copied = 0_usize;
    let mut nesting = Nesting::new(original);
    for operation in operations {
        operation.apply(&mut object, &mut copied).map_err(|fault| operation.refusal(&fault))?;
        nesting.after(operation, &object)?;
    }
    Ok(object)
}

impl Operation {
    /// `copied` is the number of bytes that all operations have copied.
    fn apply(&self, object: &mut Value, copied: &mut usize) -> Result<(), Fault> {
        match self.op.as_str() {
            "add" => add(object, self.path()?, self.value.clone()),
            "copy" => {
                let (parent, key) = resolve_parent(object, self.from()?)?;
                let value = member(parent, &key)?.cloned().unwrap_or_default();
                *copied = copied.saturating_add(size(&value));
                if *copied > COPIED_BYTES_MAX {
                    return Err(Fault::Copied(*copied));
                }
                add(object, self.path()?, value)
            }
            "move" => {
                let value = remove(object, self.from()?)?;
                add(object, self.path()?, value)
            }
            "remove" => remove(object, self.path()?).map(drop),
            "replace" => replace(object, self.path()?, self.value.clone()),
            "test" => test(object, self.path()?, &self.value),
            _ => Err(Fault::Kind),
        }
    }

    fn path(&self) -> Result<&str, Fault> {
        self.path.as_deref().ok_or(Fault::Missing)
    }

    fn from(&self) -> Result<&str, Fault> {
        self.from.as_deref().ok_or(Fault::Missing)
    }

    fn refusal(&self, fault: &Fault) -> PatchError {
        let message = || format!("{} operation does not apply at path {:?}: {fault}", self.op, self.path.as_deref().unwrap_or_default());
        match fault {
            Fault::Copied(size) => PatchError::CopyTooLarge(*size),
            Fault::Test => PatchError::TestFailed(message()),
            _ => PatchError::NotApplicable(message()),
        }
    }
}

/// The map or list in which a path ends, and the key there.
fn resolve_parent<'v>(object: &'v mut Value, path: &str) -> Result<(&'v mut Value, String), Fault> {
    let mut keys = path.split('/').skip(1).map(|key| key.replace("~1", "/").replace("~0", "~"));
    let mut key = keys.next().ok_or(Fault::Missing)?;
    let mut parent = object;
    for next in keys {
        parent = member(parent, &key)?.ok_or(Fault::Missing)?;
        key = next;
    }
    if parent.is_object() || parent.is_array() { Ok((parent, key)) } else { Err(Fault::Missing) }
}

/// The member or element of a key; a map may lack the member.
fn member<'v>(parent: &'v mut Value, key: &str) -> Result<Option<&'v mut Value>, Fault> {
    match parent {
        Value::Object(map) => Ok(map.get_mut(key)),
        Value::Array(list) => {
            let at = index(key, list.len())?;
            Ok(list.get_mut(at))
        }
        _ => Err(Fault::Missing),
    }
}

/// An index into a list of so many elements; a negative one counts from the end.
fn index(key: &str, len: usize) -> Result<usize, Fault> {
    let at: isize = key.parse().map_err(|_| Fault::Index)?;
    let at = if at < 0 { len.checked_add_signed(at) } else { usize::try_from(at).ok() };
    at.filter(|at| *at < len).ok_or(Fault::Index)
}

fn add(object: &mut Value, path: &str, value: Value) -> Result<(), Fault> {
    match resolve_parent(object, path)? {
        (Value::Object(map), key) => drop(map.insert(key, value)),
        (Value::Array(list), key) if key == "-" => list.push(value),
        (Value::Array(list), key) => list.insert(index(&key, list.len() + 1)?, value),
        _ => return Err(Fault::Missing),
    }
    Ok(())
}

fn remove(object: &mut Value, path: &str) -> Result<Value, Fault> {
    match resolve_parent(object, path)? {
        (Value::Object(map), key) => map.remove(&key).ok_or(Fault::Missing),
        (Value::Array(list), key) => Ok(list.remove(index(&key, list.len())?)),
        _ => Err(Fault::Missing),
    }
}

fn replace(object: &mut Value, path: &str, value: Value) -> Result<(), Fault> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err(Fault::Root);
        }
        *object = value;
        return Ok(());
    }
    match resolve_parent(object, path)? {
        (Value::Object(map), key) => drop(map.insert(key, value)),
        (parent, key) => *member(parent, &key)?.ok_or(Fault::Missing)? = value,
    }
    Ok(())
}

fn test(object: &mut Value, path: &str, wanted: &Value) -> Result<(), Fault> {
    let current = if path.is_empty() {
        Some(object)
    } else {
        let (parent, key) = resolve_parent(object, path)?;
        member(parent, &key)?
    };
    let is_so = current.map_or(wanted.is_null(), |current| current == wanted);
    if is_so { Ok(()) } else { Err(Fault::Test) }
}

/// An upper bound of the nesting of the object. The nesting is measured only where the operations so far could have made it
/// too deep, since measuring costs as much as the size of the object.
struct Nesting {
    at_most: usize,
    /// The limit; an object that was stored deeper may stay as deep.
    limit: usize,
    /// Visited values so far.
    measured: usize,
}

impl Nesting {
    fn new(object: &Value) -> Self {
        let depth = depth(object);
        Self { at_most: depth, limit: depth.max(DEPTH_MAX), measured: 0 }
    }

    fn after(&mut self, operation: &Operation, object: &Value) -> Result<(), PatchError> {
        let moved = match operation.op.as_str() {
            "add" | "replace" => depth(&operation.value),
            "move" | "copy" => self.at_most,
            _ => return Ok(()),
        };
        let above = operation.path.as_deref().map_or(0, |path| path.matches('/').count());
        self.at_most = self.at_most.max(above.saturating_add(moved));
        if self.at_most > self.limit {
            (self.at_most, self.measured) = measured(object, self.measured);
        }
        if self.at_most > self.limit {
            return Err(PatchError::NotApplicable(format!("the object would be nested deeper than {} levels", self.limit)));
        }
        match self.measured > MEASURED_MAX {
            true => {
                Err(PatchError::NotApplicable("the patch moves too much in an object that is too large and too deep for it".to_owned()))
            }
            false => Ok(()),
        }
    }
}

/// Levels of lists and maps.
pub(super) fn depth(value: &Value) -> usize {
    measured(value, 0).0
}

/// Levels of lists and maps, and `before` plus the number of visited values.
fn measured(value: &Value, before: usize) -> (usize, usize) {
    let among = |(deepest, visited): (usize, usize), item: &Value| {
        let (depth, visited) = measured(item, visited);
        (deepest.max(depth + 1), visited)
    };
    match value {
        Value::Array(list) => list.iter().fold((1, before + 1), among),
        Value::Object(map) => map.values().fold((1, before + 1), among),
        _ => (0, before + 1),
    }
}

/// The approximate size of a value's JSON text.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(list) => list.iter().map(|item| size(item) + 1).sum::<usize>() + 2,
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + size(value) + 4).sum::<usize>() + 2,
    }
}
