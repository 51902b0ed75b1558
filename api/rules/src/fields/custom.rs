//! Prunes the fields of a custom resource: fields that its schema does not know, and nulls where the schema allows
//! none and has no default.

use api_model::decode::DecodeError;
use api_schema::Structural;
use serde_json::{Map, Value};

use super::{Step, Trail, Walk};
use crate::prune::{FieldAction, SchemaNode};

impl Walk {
    pub(super) fn custom(&mut self, node: SchemaNode<'_>, value: &mut Value, trail: &Trail<'_>) -> Result<(), DecodeError> {
        match value {
            Value::Object(map) => {
                let is_embedded = node.is_object && !matches!(trail.step, Step::Root { .. });
                if is_embedded && let Some(metadata) = map.get_mut("metadata") {
                    self.embedded_metadata(metadata, trail)?;
                }
                self.custom_object(node, map, trail)
            }
            Value::Array(list) => {
                for (index, value) in list.iter_mut().enumerate() {
                    self.custom(node.element(), value, &trail.then(Step::Index(index), trail.owner))?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn custom_object(&mut self, node: SchemaNode<'_>, map: &mut Map<String, Value>, trail: &Trail<'_>) -> Result<(), DecodeError> {
        let mut outcome = Ok(());
        map.retain(|name, value| {
            let trail = trail.then(Step::Field(name), trail.owner);
            match node.field(name) {
                _ if outcome.is_err() => true,
                FieldAction::Prune => self.drops(&trail),
                FieldAction::Keep => true,
                FieldAction::Walk(inner) if value.is_null() => !goes_when_null(inner.schema),
                FieldAction::Walk(inner) => {
                    outcome = self.custom(inner, value, &trail);
                    true
                }
            }
        });
        outcome
    }

    fn embedded_metadata(&mut self, metadata: &mut Value, trail: &Trail<'_>) -> Result<(), DecodeError> {
        let schema = api_schema::of_gvk("", "v1", "ConfigMap").and_then(|schema| schema.property("metadata"));
        match schema {
            Some(schema) if !metadata.is_null() => self.value(schema, metadata, &trail.then(Step::Field("metadata"), trail.owner)),
            _ => Ok(()),
        }
    }
}

/// Whether a null is removed. Defaulting replaces a null of a field with a default.
fn goes_when_null(schema: Option<&Structural>) -> bool {
    schema.is_some_and(|schema| !schema.nullable && schema.default.is_none())
}
