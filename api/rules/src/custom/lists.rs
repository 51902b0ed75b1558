//! Lists with unique elements: `x-kubernetes-list-type` `set` and `map`.

use api_model::field::{FieldError, Path};
use api_schema::Structural;
use serde_json::{Map, Value};

/// The duplicate elements.
pub fn check(schema: &Structural, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, value, &Path::default(), &mut errors);
    errors
}

fn walk(schema: &Structural, value: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = if schema.properties.contains_key(key) { path.child(key) } else { path.key(key) };
                if let Some(field) = schema.field(key) {
                    walk(field, value, &path, errors);
                }
            }
        }
        Value::Array(list) => {
            match schema.list_type.as_str() {
                "set" => twice(list.iter().cloned(), path, errors),
                "map" => twice(list.iter().map(|element| keys(schema, element)), path, errors),
                _ => {}
            }
            if let Some(items) = &schema.items {
                list.iter().enumerate().for_each(|(index, value)| walk(items, value, &path.index(index), errors));
            }
        }
        _ => {}
    }
}

fn keys(schema: &Structural, element: &Value) -> Value {
    let pairs = schema.list_map_keys.iter().filter_map(|key| Some((key.clone(), element.get(key)?.clone())));
    Value::Object(pairs.collect::<Map<_, _>>())
}

fn twice(identities: impl Iterator<Item = Value>, path: &Path, errors: &mut Vec<FieldError>) {
    let mut seen = std::collections::HashSet::new();
    for (index, identity) in identities.enumerate() {
        // Equal values have equal JSON text, because maps are sorted.
        if !seen.insert(identity.to_string()) {
            errors.push(FieldError::duplicate(&path.index(index), identity));
        }
    }
}
