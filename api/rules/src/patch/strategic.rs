//! Strategic merge patch: a merge patch that merges some lists by key.
//!
//! Directives, as in upstream's `strategicpatch`: `$patch: delete|replace|merge` in a map or a list
//! element, `$retainKeys` in a map, `$setElementOrder/FIELD` and `$deleteFromPrimitiveList/FIELD`
//! beside a list. All look-ups use hashed keys, so the run time is proportional to the sizes of the patch and the object.

mod order;

use std::collections::{HashMap, HashSet};

use api_schema::{PatchStrategy, Schema};
use serde_json::{Map, Value};

use super::PatchError;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ELEMENT_ORDER: &str = "$setElementOrder/";
const DELETE_PRIMITIVES: &str = "$deleteFromPrimitiveList/";

/// Merges a patch into a map. Without a schema (a free-form field) lists are replaced.
pub fn merge_map(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    schema: Option<&Schema>,
) -> Result<Map<String, Value>, PatchError> {
    match patch.remove(PATCH) {
        None => {}
        Some(Value::String(directive)) => match directive.as_str() {
            "replace" => return Ok(patch),
            "delete" => return Ok(Map::new()),
            "merge" => {}
            other => return Err(malformed(format!("unknown patch type found: {other}"))),
        },
        Some(other) => return Err(malformed(format!("unknown patch type found: {other}"))),
    }
    retain_keys(&mut original, &mut patch)?;
    apply_element_orders(&mut original, &mut patch, schema)?;
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix(DELETE_PRIMITIVES) {
            delete_primitives(&mut original, field, &value)?;
        } else if value.is_null() {
            original.remove(&key);
        } else {
            let field = field_schema(schema, &key);
            let merged = match (original.remove(&key), value) {
                (Some(Value::Object(old)), Value::Object(new)) => Some(Value::Object(merge_map(old, new, field)?)),
                (Some(Value::Array(old)), Value::Array(new)) if strategy(field).merge => Some(Value::Array(merge_list(old, new, field)?)),
                (_, value) => without_directives(value),
            };
            original.extend(merged.map(|merged| (key, merged)));
        }
    }
    Ok(original)
}

fn malformed(text: impl Into<String>) -> PatchError {
    PatchError::Malformed(text.into())
}

fn field_schema<'s>(schema: Option<&'s Schema>, name: &str) -> Option<&'s Schema> {
    schema.and_then(|schema| schema.property(name).or_else(|| schema.additional()))
}

fn strategy(schema: Option<&Schema>) -> PatchStrategy {
    schema.map(Schema::patch_strategy).unwrap_or_default()
}

/// `$retainKeys`: removes the fields of the object that the list does not name; the patch may set no others.
fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), PatchError> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let bad = || malformed("invalid patch format of retainKeys");
    let retained: HashSet<&str> = retained.as_array().ok_or_else(bad)?.iter().filter_map(Value::as_str).collect();
    let named = |key: &String| {
        let field = key.strip_prefix(ELEMENT_ORDER).or_else(|| key.strip_prefix(DELETE_PRIMITIVES)).unwrap_or(key);
        retained.contains(field)
    };
    if !patch.iter().all(|(key, value)| value.is_null() || named(key)) {
        return Err(bad());
    }
    original.retain(|key, _| retained.contains(key.as_str()));
    Ok(())
}

/// `$deleteFromPrimitiveList`: removes the listed values from the list.
fn delete_primitives(original: &mut Map<String, Value>, field: &str, deleted: &Value) -> Result<(), PatchError> {
    let deleted = deleted.as_array().ok_or_else(|| malformed("invalid patch format of primitive list"))?;
    let deleted: HashSet<String> = deleted.iter().map(Value::to_string).collect();
    if let Some(Value::Array(list)) = original.get_mut(field) {
        list.retain(|item| !deleted.contains(&item.to_string()));
    }
    Ok(())
}

/// `$setElementOrder`: merges the list that it refers to, if the patch has one, and sorts the result.
fn apply_element_orders(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    schema: Option<&Schema>,
) -> Result<(), PatchError> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let field = directive.strip_prefix(ELEMENT_ORDER).unwrap_or_default().to_owned();
        let Some(Value::Array(wanted)) = patch.remove(&directive) else {
            return Err(malformed("invalid patch format of setElementOrder list"));
        };
        let item_schema = field_schema(schema, &field);
        let key = ElementKey::new(item_schema, &wanted);
        let new = match patch.remove(&field) {
            Some(Value::Array(list)) => Some(list),
            Some(other) => {
                // Nothing to sort: the patch removes or replaces the list by something else.
                patch.insert(field, other);
                continue;
            }
            None => None,
        };
        if let Some(new) = &new {
            order::check(new, &wanted, &key, &field)?;
        }
        let old = match original.remove(&field) {
            Some(Value::Array(list)) => Some(list),
            _ => None,
        };
        let merged = match (old.clone(), new) {
            (None, None) => continue,
            (Some(old), None) => old,
            (None, Some(new)) => new.into_iter().filter_map(without_directives).collect(),
            (Some(old), Some(new)) if strategy(item_schema).merge => merge_list(old, new, item_schema)?,
            (Some(_), Some(new)) => new,
        };
        let sorted = order::normalize(merged, &wanted, &old.unwrap_or_default(), &key);
        original.insert(field, Value::Array(sorted));
    }
    Ok(())
}

/// Merges a list whose strategy is `merge`: of maps by their merge key, of primitives as a set.
fn merge_list(old: Vec<Value>, new: Vec<Value>, schema: Option<&Schema>) -> Result<Vec<Value>, PatchError> {
    let key = ElementKey::new(schema, if new.is_empty() { &old } else { &new });
    let ElementKey::Field(name) = key else {
        let mut seen = HashSet::new();
        let merged: Vec<Value> = old.iter().chain(&new).filter(|item| seen.insert(item.to_string())).cloned().collect();
        return Ok(order::normalize(merged, &new, &old, &key));
    };
    let before = old.clone();
    let Parted { retained, changes, replace } = part(old, new, name)?;
    if replace {
        return Ok(changes);
    }
    let merged = merge_elements(retained, &changes, name, schema.and_then(Schema::items))?;
    Ok(order::normalize(merged, &changes, &before, &key))
}

struct Parted {
    retained: Vec<Value>,
    changes: Vec<Value>,
    replace: bool,
}

/// Applies the `$patch` directives among the elements of a list.
fn part(old: Vec<Value>, new: Vec<Value>, key: &str) -> Result<Parted, PatchError> {
    let mut deleted = HashSet::new();
    let mut parted = Parted { retained: Vec::new(), changes: Vec::new(), replace: false };
    for element in new {
        match element.get(PATCH).and_then(Value::as_str) {
            None if element.get(PATCH).is_some() => return Err(malformed("unknown patch type found")),
            None => parted.changes.push(element),
            Some("delete") => {
                let value = element.get(key).ok_or_else(|| malformed("delete patch type with no merge key defined"))?;
                deleted.insert(value.to_string());
            }
            Some("replace") => parted.replace = true,
            Some("merge") => return Err(malformed("merging lists cannot yet be specified in the patch")),
            Some(other) => return Err(malformed(format!("unknown patch type found: {other}"))),
        }
    }
    parted.retained = old.into_iter().filter(|item| !item.get(key).is_some_and(|value| deleted.contains(&value.to_string()))).collect();
    Ok(parted)
}

/// Merges each change into the element of the same key, or appends it.
fn merge_elements(mut list: Vec<Value>, changes: &[Value], key: &str, items: Option<&Schema>) -> Result<Vec<Value>, PatchError> {
    let mut positions: HashMap<String, usize> = HashMap::new();
    for (at, item) in list.iter().enumerate() {
        if let Some(value) = item.get(key) {
            positions.entry(value.to_string()).or_insert(at);
        }
    }
    for change in changes {
        let (Value::Object(fields), Some(value)) = (change, change.get(key)) else {
            return Err(malformed(format!("map: {change} does not contain declared merge key: {key}")));
        };
        match positions.get(&value.to_string()).and_then(|at| list.get_mut(*at)) {
            Some(Value::Object(old)) => *old = merge_map(std::mem::take(old), fields.clone(), items)?,
            _ => {
                positions.insert(value.to_string(), list.len());
                list.extend(without_directives(change.clone()));
            }
        }
    }
    Ok(list)
}

/// The result of a value that only the patch has: nulls and directives in it are removed. `None` where a directive deletes
/// the value itself.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) => {
            if map.get(PATCH).and_then(Value::as_str) == Some("delete") {
                return None;
            }
            let clean = map.into_iter().filter(|(key, value)| !value.is_null() && !is_directive(key));
            Some(Value::Object(clean.filter_map(|(key, value)| Some((key, without_directives(value)?))).collect()))
        }
        Value::Array(list) => Some(Value::Array(
            list.into_iter()
                .filter(|item| item.get(PATCH).and_then(Value::as_str).is_none_or(|directive| directive == "merge"))
                .filter_map(without_directives)
                .collect(),
        )),
        other => Some(other),
    }
}

fn is_directive(key: &str) -> bool {
    key == PATCH || key == RETAIN_KEYS || key.starts_with(ELEMENT_ORDER) || key.starts_with(DELETE_PRIMITIVES)
}

/// The key of the elements of a list.
#[derive(Clone, Copy)]
enum ElementKey {
    /// A field.
    Field(&'static str),
    /// The whole value, for primitives.
    Value,
}

impl ElementKey {
    fn new(schema: Option<&Schema>, sample: &[Value]) -> Self {
        match schema.and_then(Schema::merge_key) {
            Some(key) if sample.first().is_none_or(Value::is_object) => Self::Field(key),
            _ => Self::Value,
        }
    }

    fn id(self, element: &Value) -> String {
        match self {
            Self::Field(key) => element.get(key).map(Value::to_string).unwrap_or_default(),
            Self::Value => element.to_string(),
        }
    }
}
