//! The content of a CustomResourceDefinition for one served version, as a part of the version's [`Kind`].
//!
//! For custom kinds, each layer reads here what built-in kinds have in tables: the schema, the printer columns, the
//! selectable fields, the paths of the scale subresource. A layer builds its own form (a tree, compiled patterns and
//! rules) once and keeps it in a slot of [`Custom`]. So the form lives exactly as long as the definition is served.
//!
//! [`Kind`]: super::Kind

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;

use serde_json::Value;

/// One version of a custom resource, beyond what every kind has.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Custom {
    /// The kind of lists; usually the kind with the suffix `List`.
    pub list_kind: String,
    /// The version in which objects are stored; `None` if it is not served.
    pub storage_version: Option<String>,
    /// `openAPIV3Schema`; null if the definition has none.
    pub schema: Value,
    /// `additionalPrinterColumns`; if it is empty, lists show name and age.
    pub columns: Vec<CustomColumn>,
    /// `selectableFields` without their leading dot.
    pub selectable_fields: Vec<String>,
    /// The fields of the scale subresource.
    pub scale: Option<ScalePaths>,
    /// The warning in every response of a deprecated version.
    pub deprecation_warning: Option<String>,
    /// The forms that the layers built.
    pub slots: Slots,
}

/// One of `additionalPrinterColumns`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CustomColumn {
    /// Heading.
    pub name: String,
    /// OpenAPI type: `integer`, `number`, `string`, `boolean` or `date`.
    pub kind: String,
    /// OpenAPI format; may be empty.
    pub format: String,
    /// The description; may be empty.
    pub description: String,
    /// A column with priority 0 is always shown, others only with `-o wide`.
    pub priority: i32,
    /// The path of the cell in an object.
    pub json_path: String,
}

/// The fields of the scale subresource, as dotted paths without a leading dot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScalePaths {
    /// `specReplicasPath`
    pub spec_replicas: String,
    /// `statusReplicasPath`
    pub status_replicas: String,
    /// `labelSelectorPath`; empty if absent.
    pub label_selector: String,
}

/// The layer that owns a slot.
#[derive(Clone, Copy, Debug)]
pub enum Slot {
    /// `api-schema`: the tree of the schema.
    Schema,
    /// `api-rules`: patterns and validation rules.
    Rules,
    /// `api-print`: paths of the columns.
    Columns,
}

/// The slots of the layers. They are ignored when definitions are compared.
#[derive(Default)]
pub struct Slots([OnceLock<Box<dyn Any + Send + Sync>>; 3]);

impl Custom {
    /// The form of a layer, built at the first call. `None` only if callers use different types for one slot, which is
    /// a bug.
    pub fn cached<T: Any + Send + Sync>(&self, slot: Slot, make: impl FnOnce() -> T) -> Option<&T> {
        let Slots([schema, rules, columns]) = &self.slots;
        let cell = match slot {
            Slot::Schema => schema,
            Slot::Rules => rules,
            Slot::Columns => columns,
        };
        cell.get_or_init(|| Box::new(make())).downcast_ref()
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slots")
    }
}

impl PartialEq for Slots {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Slots {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_values_are_made_once_and_do_not_make_definitions_differ() {
        let (one, other) = (Custom::default(), Custom::default());
        assert_eq!(one.cached(Slot::Schema, || 7_u32), Some(&7));
        assert_eq!(one.cached(Slot::Schema, || 8_u32), Some(&7));
        assert_eq!(one.cached(Slot::Schema, || "another type"), None);
        assert_eq!(one.cached(Slot::Rules, || "another slot"), Some(&"another slot"));
        assert_eq!(one, other);
    }
}
