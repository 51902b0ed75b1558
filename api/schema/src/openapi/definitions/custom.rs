//! The published schema of a custom resource: the schema in its definition, with the type and metadata fields of every
//! object. Embedded objects get these fields too.

use serde_json::{Map, Value, json};

use super::META;
use crate::builtin::DEFINITIONS;

/// The fields besides `properties` that may contain schemas of embedded resources.
const NESTED: [&str; 2] = ["items", "additionalProperties"];

/// Upstream's description of the field in PartialObjectMetadata.
const METADATA: &str =
    "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The definition of a custom kind. `type_meta` has the descriptions of `apiVersion` and `kind`.
pub(super) fn definition(schema: &Value, type_meta: &Value) -> Value {
    let mut definition = schema.clone();
    with_embedded(&mut definition, type_meta);
    with_metadata(&mut definition, type_meta);
    definition
}

fn with_metadata(schema: &mut Value, type_meta: &Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    let properties = fields.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    let Some(properties) = properties.as_object_mut() else { return };
    for name in ["apiVersion", "kind"] {
        properties.insert(name.to_owned(), type_meta.get(name).cloned().unwrap_or_else(|| json!({"type": "string"})));
    }
    let metadata = json!({"description": METADATA, "allOf": [{"$ref": format!("{DEFINITIONS}{META}.ObjectMeta")}]});
    properties.insert("metadata".to_owned(), metadata);
}

fn with_embedded(schema: &mut Value, type_meta: &Value) {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(|property| with_embedded(property, type_meta));
    }
    for name in NESTED {
        if let Some(nested) = schema.get_mut(name) {
            with_embedded(nested, type_meta);
        }
    }
    if schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) {
        with_metadata(schema, type_meta);
        require_type(schema);
    }
}

/// An embedded object must have `kind` and `apiVersion`.
fn require_type(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    let required = fields.entry("required").or_insert_with(|| json!([]));
    let Some(required) = required.as_array_mut() else { return };
    for name in ["kind", "apiVersion"] {
        if !required.iter().any(|known| known == name) {
            required.push(name.into());
        }
    }
}
