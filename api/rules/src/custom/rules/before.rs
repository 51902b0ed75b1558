//! What was at a place before an update: what rules compare with, and whether what they say of it is news.

use api_schema::Structural;
use serde_json::Value;

use crate::custom::values::Elements;

/// Fields of whole objects in which a change cannot be seen: both versions are converted to the same.
const TYPE_FIELDS: [&str; 2] = ["apiVersion", "kind"];

/// What was at a place before.
#[derive(Clone, Copy)]
pub struct Before<'v> {
    /// None where that cannot be told.
    pub old: Option<&'v Value>,
    /// Whether `old` tells if the place has changed.
    is_telling: bool,
    /// Whether it cannot be told, and the nearest place above of which it can has not changed.
    is_within_unchanged: bool,
}

impl<'v> Before<'v> {
    /// Of a whole object.
    pub fn new(old: Option<&'v Value>) -> Self {
        Self { old, is_telling: true, is_within_unchanged: false }
    }

    /// Whether the value is as it was.
    pub fn is_unchanged(self, schema: &Structural, value: &Value) -> bool {
        match self.old {
            Some(old) => self.is_telling && is_same(schema, old, value),
            None => self.is_within_unchanged,
        }
    }

    /// Whether what is in the value, and of which cannot be told what it was, is as it was.
    pub fn is_within(self, schema: &Structural, value: &Value) -> bool {
        match (self.old, value) {
            // A field that was not there, or an element with new keys, is new.
            (Some(Value::Object(_)), Value::Object(_)) => false,
            (Some(Value::Array(_)), Value::Array(_)) if is_keyed(schema) => false,
            _ => self.is_unchanged(schema, value),
        }
    }

    /// Of a field; `is_within` is of the object.
    pub fn field(self, name: &str, is_root: bool, is_within: bool) -> Self {
        let old = self.old.and_then(|old| old.get(name));
        Self { old, is_telling: self.is_telling && !(is_root && TYPE_FIELDS.contains(&name)), is_within_unchanged: is_within }
    }

    /// Of an element; `is_within` is of the list.
    pub fn element(self, elements: Option<&Elements<'_, 'v>>, element: &Value, is_within: bool) -> Self {
        let old = elements.and_then(|elements| elements.same_as(element));
        Self { old, is_telling: self.is_telling, is_within_unchanged: is_within }
    }
}

fn is_keyed(schema: &Structural) -> bool {
    schema.list_type == "map"
}

/// Whether a value is as it was, as upstream compares (`CorrelatedObject`): elements with keys may stand in another
/// order, and of fields without a schema nobody can tell.
fn is_same(schema: &Structural, old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Array(before), Value::Array(after)) => match (Elements::by_keys(schema, Some(old)), &schema.items) {
            _ if before.len() != after.len() => false,
            (Some(known), Some(items)) => {
                after.iter().all(|element| known.same_as(element).is_some_and(|before| is_same(items, before, element)))
            }
            _ => before == after,
        },
        (Value::Object(before), Value::Object(after)) => {
            let is_same_field = |(name, new): (&String, &Value)| match (before.get(name), schema.field(name)) {
                (Some(old), Some(field)) => is_same(field, old, new),
                _ => false,
            };
            before.len() == after.len() && after.iter().all(is_same_field)
        }
        (old, new) => old == new,
    }
}
