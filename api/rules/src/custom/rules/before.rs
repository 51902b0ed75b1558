//! The old value beside a value during an update: rules compare with it, and an error in an unchanged value is a warning.

use api_schema::Structural;
use serde_json::Value;

use crate::custom::values::Elements;

/// Fields of whole objects that never differ: both objects are converted to the same version.
const TYPE_FIELDS: [&str; 2] = ["apiVersion", "kind"];

/// The old value.
#[derive(Clone, Copy)]
pub struct Before<'v> {
    /// `None` where the value cannot be correlated with an old one.
    pub old: Option<&'v Value>,
    /// Whether a comparison with `old` shows if the value has changed.
    is_telling: bool,
    /// Whether the value cannot be correlated, and the nearest value above that can be correlated has not changed.
    is_within_unchanged: bool,
}

impl<'v> Before<'v> {
    /// The old value of a whole object.
    pub fn new(old: Option<&'v Value>) -> Self {
        Self { old, is_telling: true, is_within_unchanged: false }
    }

    /// Whether the value has not changed.
    pub fn is_unchanged(self, schema: &Structural, value: &Value) -> bool {
        match self.old {
            Some(old) => self.is_telling && is_same(schema, old, value),
            None => self.is_within_unchanged,
        }
    }

    /// Whether values within this one that cannot be correlated count as unchanged.
    pub fn is_within(self, schema: &Structural, value: &Value) -> bool {
        match (self.old, value) {
            // A new field, or an element with new keys, has changed.
            (Some(Value::Object(_)), Value::Object(_)) => false,
            (Some(Value::Array(_)), Value::Array(_)) if is_keyed(schema) => false,
            _ => self.is_unchanged(schema, value),
        }
    }

    /// The old value of a field; `is_within` is that of the object.
    pub fn field(self, name: &str, is_root: bool, is_within: bool) -> Self {
        let old = self.old.and_then(|old| old.get(name));
        Self { old, is_telling: self.is_telling && !(is_root && TYPE_FIELDS.contains(&name)), is_within_unchanged: is_within }
    }

    /// The old value of an element; `is_within` is that of the list.
    pub fn element(self, elements: Option<&Elements<'_, 'v>>, element: &Value, is_within: bool) -> Self {
        let old = elements.and_then(|elements| elements.same_as(element));
        Self { old, is_telling: self.is_telling, is_within_unchanged: is_within }
    }
}

fn is_keyed(schema: &Structural) -> bool {
    schema.list_type == "map"
}

/// Whether two values are equal in upstream's comparison (`CorrelatedObject`): elements with keys may have another order,
/// and fields without a schema are not compared.
fn is_same(schema: &Structural, old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Array(before), Value::Array(after)) => match (Elements::by_keys(schema, Some(old)), &schema.items) {
            _ if before.len() != after.len() => false,
            (Some(elements), Some(items)) => {
                after.iter().all(|element| elements.same_as(element).is_some_and(|before| is_same(items, before, element)))
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
