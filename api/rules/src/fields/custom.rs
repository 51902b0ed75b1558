//! The fields of a custom resource: those that its schema does not know go, and nulls where none may be
//! and no default takes their place.

use api_schema::Structural;
use serde_json::{Map, Value};

use super::{Step, Trail, Walk};
use crate::decode::DecodeError;
use crate::prune::{Fate, Place};

impl Walk {
    pub(super) fn custom(&mut self, place: Place<'_>, value: &mut Value, trail: &Trail<'_>) -> Result<(), DecodeError> {
        match value {
            Value::Object(map) => {
                let is_embedded = place.is_object && !matches!(trail.step, Step::Root { .. });
                if is_embedded && let Some(metadata) = map.get_mut("metadata") {
                    self.embedded_metadata(metadata, trail)?;
                }
                self.custom_object(place, map, trail)
            }
            Value::Array(list) => {
                for (index, value) in list.iter_mut().enumerate() {
                    self.custom(place.element(), value, &trail.then(Step::Index(index), trail.owner))?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn custom_object(&mut self, place: Place<'_>, map: &mut Map<String, Value>, trail: &Trail<'_>) -> Result<(), DecodeError> {
        let mut outcome = Ok(());
        map.retain(|name, value| {
            let trail = trail.then(Step::Field(name), trail.owner);
            match place.field(name) {
                _ if outcome.is_err() => true,
                Fate::Prune => self.drops(&trail),
                Fate::Keep => true,
                Fate::Walk(inner) if value.is_null() => !goes_when_null(inner.schema),
                Fate::Walk(inner) => {
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

/// Whether a null counts as nothing given: defaulting takes care of those that have a default.
fn goes_when_null(schema: Option<&Structural>) -> bool {
    schema.is_some_and(|schema| !schema.nullable && schema.default.is_none())
}
