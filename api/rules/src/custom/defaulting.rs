//! Defaults of a structural schema: upstream's `structuraldefaulting`. A null that the schema does not allow counts as an
//! absent field.

use api_schema::{Additional, Structural};
use serde_json::Value;

/// Adds defaults for missing fields of existing objects.
pub fn default(schema: &Structural, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, property) in &schema.properties {
                let Some(default) = &property.default else { continue };
                if map.get(name).is_none_or(|given| given.is_null() && !property.nullable) {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in map.iter_mut() {
                match (schema.properties.get(name), &schema.additional) {
                    (Some(property), _) => default(property, value),
                    (None, Additional::Schema(further)) => element(further, value),
                    (None, _) => {}
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                list.iter_mut().for_each(|value| element(items, value));
            }
        }
        _ => {}
    }
}

/// An entry of a list or of a map with free keys.
fn element(schema: &Structural, value: &mut Value) {
    if let (Value::Null, false, Some(given)) = (&*value, schema.nullable, &schema.default) {
        *value = given.clone();
    }
    default(schema, value);
}
