//! What a CustomResourceDefinition says of one served version, carried by the version's [`Kind`].
//!
//! Every layer that takes a [`Kind`] finds here what built-in kinds have in tables: the schema, the
//! printer columns, the selectable fields, the paths of the scale subresource. What a layer makes of it
//! (a tree to walk, compiled patterns and rules) is made once and kept in a slot of [`Custom`], so that
//! it lives exactly as long as the definition is served.
//!
//! [`Kind`]: super::Kind

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;

use serde_json::Value;

/// One version of a custom resource, beyond what every kind has.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Custom {
    /// Kind of lists; usually the kind with `List` behind it.
    pub list_kind: String,
    /// The version in which objects are stored; none where it is not served.
    pub storage_version: Option<String>,
    /// `openAPIV3Schema`; null where the definition has none.
    pub schema: Value,
    /// `additionalPrinterColumns`; without any, lists show name and age.
    pub columns: Vec<CustomColumn>,
    /// `selectableFields` without their leading dot.
    pub selectable_fields: Vec<String>,
    /// Where the scale subresource finds its numbers.
    pub scale: Option<ScalePaths>,
    /// The text of the warning that comes with every answer of a deprecated version.
    pub deprecation_warning: Option<String>,
    /// What the layers made of it.
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
    /// What the column tells; may be empty.
    pub description: String,
    /// 0 is always shown, above that only with `-o wide`.
    pub priority: i32,
    /// Where in an object the cell is.
    pub json_path: String,
}

/// Where the scale subresource finds its numbers, in dotted notation without a leading dot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScalePaths {
    /// `specReplicasPath`
    pub spec_replicas: String,
    /// `statusReplicasPath`
    pub status_replicas: String,
    /// `labelSelectorPath`; empty where there is none.
    pub label_selector: String,
}

/// Which layer keeps something.
#[derive(Clone, Copy, Debug)]
pub enum Slot {
    /// `api-schema`: the schema as a tree.
    Schema,
    /// `api-rules`: patterns and validation rules.
    Rules,
    /// `api-print`: paths of the columns.
    Columns,
}

/// What the layers keep; plays no part in comparing definitions.
#[derive(Default)]
pub struct Slots([OnceLock<Box<dyn Any + Send + Sync>>; 3]);

impl Custom {
    /// What a layer keeps, made when first asked for. `None` only where two types share a slot, which
    /// is a mistake of the caller's.
    pub fn kept<T: Any + Send + Sync>(&self, slot: Slot, make: impl FnOnce() -> T) -> Option<&T> {
        let Slots([schema, rules, columns]) = &self.slots;
        let place = match slot {
            Slot::Schema => schema,
            Slot::Rules => rules,
            Slot::Columns => columns,
        };
        place.get_or_init(|| Box::new(make())).downcast_ref()
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
    fn what_is_kept_is_made_once_and_does_not_make_definitions_differ() {
        let (one, other) = (Custom::default(), Custom::default());
        assert_eq!(one.kept(Slot::Schema, || 7_u32), Some(&7));
        assert_eq!(one.kept(Slot::Schema, || 8_u32), Some(&7));
        assert_eq!(one.kept(Slot::Schema, || "another type"), None);
        assert_eq!(one.kept(Slot::Rules, || "another slot"), Some(&"another slot"));
        assert_eq!(one, other);
    }
}
