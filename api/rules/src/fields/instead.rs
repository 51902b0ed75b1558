//! Values with a decoder of their own upstream: free JSON, which is not changed, the alternatives to a schema in a
//! definition of custom resources, and objects without fields.
//!
//! `additionalProperties` is a boolean or a schema. In `items` and `dependencies` a value that is neither a schema nor a
//! list counts as absent. These decoders do not report unknown fields: they are pruned without a warning.

use api_model::decode::DecodeError;
use api_schema::Schema;
use serde_json::Value;

use super::{Trail, Walk, go_type, short_name};

/// Objects without fields; only their presence has a meaning.
const WITHOUT_FIELDS: [&str; 10] = [
    "AllCompositeDisruptionMode",
    "AllDisruptionMode",
    "BasicSchedulingPolicy",
    "CompositeBasicSchedulingPolicy",
    "CustomResourceSubresourceStatus",
    "SingleCompositeDisruptionMode",
    "SingleDisruptionMode",
    "WorkloadPodGroupAllDisruptionMode",
    "WorkloadPodGroupBasicSchedulingPolicy",
    "WorkloadPodGroupSingleDisruptionMode",
];

impl Walk {
    /// Sets null where the value counts as absent.
    pub(super) fn free(&mut self, schema: &Schema, value: &mut Value, trail: &Trail<'_>) -> Result<(), DecodeError> {
        match (schema.definition().map(short_name), &mut *value) {
            (Some("JSONSchemaPropsOrBool"), Value::Bool(_)) => Ok(()),
            (Some("JSONSchemaPropsOrBool" | "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrStringArray"), Value::Object(_)) => {
                within(schemas(), value, trail)
            }
            (Some("JSONSchemaPropsOrBool"), _) => Err(DecodeError::Type("boolean or JSON schema expected".to_owned())),
            // Lists of schemas and of names have their usual schema.
            (Some("JSONSchemaPropsOrArray"), Value::Array(list)) if !list.is_empty() => within(listed("allOf"), value, trail),
            (Some("JSONSchemaPropsOrStringArray"), Value::Array(list)) if !list.is_empty() => within(listed("required"), value, trail),
            (Some("JSONSchemaPropsOrArray" | "JSONSchemaPropsOrStringArray"), _) => {
                *value = Value::Null;
                Ok(())
            }
            (Some(name), Value::Object(map)) if WITHOUT_FIELDS.contains(&name) => self.object(schema, map, trail),
            (Some(name), other) if WITHOUT_FIELDS.contains(&name) => Err(trail.mismatch(other, &go_type(schema))),
            _ => Ok(()),
        }
    }
}

/// As upstream's own unmarshaler, this check does not report unknown fields.
fn within(schema: Option<&Schema>, value: &mut Value, trail: &Trail<'_>) -> Result<(), DecodeError> {
    schema.map_or(Ok(()), |schema| Walk::default().value(schema, value, trail))
}

/// The schema of schemas.
fn schemas() -> Option<&'static Schema> {
    let definition = api_schema::of_gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition")?;
    definition.property("spec")?.property("versions")?.items()?.property("schema")?.property("openAPIV3Schema")
}

/// The schema of a list in schemas.
fn listed(name: &str) -> Option<&'static Schema> {
    schemas()?.property(name)
}

#[cfg(test)]
mod tests;
