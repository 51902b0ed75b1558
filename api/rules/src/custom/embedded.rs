//! Embedded objects (`x-kubernetes-embedded-resource`) need a type and valid metadata.

use api_model::field::{FieldError, Path};
use api_schema::Structural;
use serde_json::Value;

use crate::at::At;
use crate::checks::Checks;
use crate::{format, meta};

/// Checks the embedded objects of an object.
pub fn check(schema: &Structural, object: &Value, errors: &mut Vec<FieldError>) {
    walk(schema, object, &Path::default(), errors);
}

fn walk(schema: &Structural, value: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            if schema.embedded_resource {
                whole(value, path, errors);
            }
            for (key, value) in map {
                let path = if schema.properties.contains_key(key) { path.child(key) } else { path.key(key) };
                if let Some(field) = schema.field(key) {
                    walk(field, value, &path, errors);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                list.iter().enumerate().for_each(|(index, value)| walk(items, value, &path.index(index), errors));
            }
        }
        _ => {}
    }
}

fn whole(object: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let mut checks = Checks::default();
    let at = At::new(Some(object), path.clone());
    for field in ["apiVersion", "kind"] {
        if at.get(field).text().is_empty() {
            checks.required(&at.get(field), "must not be empty");
        }
    }
    let metadata = at.get("metadata");
    let name = metadata.get("name");
    if !name.text().is_empty() {
        checks.format(&name, format::path_segment(name.text()));
    }
    meta::template(&metadata, &mut checks);
    errors.extend(checks.into_errors());
}
