//! Checks a body against the schema of its kind: prunes unknown fields, rejects wrong types, and writes quantities, times
//! and base64 in the form that upstream stores.
//!
//! The messages are those of Go's JSON decoder, since `kubectl` prints them:
//! `json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32`.

mod custom;
mod instead;
mod scalar;
mod time;

use api_model::decode::{DecodeError, Duplicate, yaml_complaint};
use api_model::go::json_type;
use api_model::kind::Kind;
use api_schema::{Schema, Shape};
use serde_json::{Map, Value};

use crate::prune::SchemaNode;

/// Most reported unknown fields; further ones are pruned without a warning.
const UNKNOWN_MAX: usize = 100;

/// The query parameter `fieldValidation`: how unknown and duplicate fields are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Prune without a warning.
    Ignore,
    /// Prune and warn: the default.
    #[default]
    Warn,
    /// Reject the request.
    Strict,
}

impl FieldValidation {
    /// Parses the query parameter; empty is the default, anything unknown is `None`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Warn" => Some(Self::Warn),
            "Ignore" => Some(Self::Ignore),
            "Strict" => Some(Self::Strict),
            _ => None,
        }
    }
}

/// Checks an object of a kind and changes it in place: prunes unknown fields and nulls, and writes quantities and times in
/// their stored form. Returns warnings. Of a custom resource only the types of the metadata are checked: its own fields
/// are pruned here and checked by validation. Floats without a fraction become integers.
pub fn check_fields(kind: &Kind, object: &mut Value, duplicates: &[Duplicate], mode: FieldValidation) -> Result<Vec<String>, DecodeError> {
    let Some(schema) = api_schema::structural(kind) else {
        return check_body(&kind.group, &kind.version, &kind.kind, object, duplicates, mode);
    };
    let mut walk = Walk::default();
    api_model::numbers::settle_numbers(object);
    walk.metadata_only(object, &kind.kind, &kind.version)?;
    walk.custom(SchemaNode::root(schema), object, &Trail::root(&kind.kind, &kind.version))?;
    verdict(&walk, duplicates, mode)
}

/// As [`check_fields`], for a body of a group, version and kind: `Scale`, `Eviction`, `DeleteOptions`, …
pub fn check_body(
    group: &str,
    version: &str,
    kind: &str,
    object: &mut Value,
    duplicates: &[Duplicate],
    mode: FieldValidation,
) -> Result<Vec<String>, DecodeError> {
    let mut walk = Walk::default();
    match api_schema::of_gvk(group, version, kind) {
        Some(schema) => walk.value(schema, object, &Trail::root(kind, version))?,
        None => walk.metadata_only(object, kind, version)?,
    }
    verdict(&walk, duplicates, mode)
}

/// The error or the warnings about unknown and duplicate fields. Upstream's decoder of YAML runs before that of JSON,
/// which finds the unknown ones.
fn verdict(walk: &Walk, duplicates: &[Duplicate], mode: FieldValidation) -> Result<Vec<String>, DecodeError> {
    let (lines, paths): (Vec<Duplicate>, Vec<Duplicate>) =
        duplicates.iter().cloned().partition(|duplicate| matches!(duplicate, Duplicate::Line(..)));
    let unknown = walk.unknown.iter().map(|path| format!("unknown field {}", Value::from(path.as_str())));
    let json: Vec<String> = unknown.chain(paths.iter().map(Duplicate::to_string)).collect();
    match mode {
        FieldValidation::Strict if !lines.is_empty() => Err(DecodeError::Strict([vec![yaml_complaint(&lines)], json].concat())),
        FieldValidation::Strict if !json.is_empty() => Err(DecodeError::Strict(json)),
        FieldValidation::Strict | FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(lines.iter().map(Duplicate::to_string).chain(json).collect()),
    }
}

/// The path of the walk, on the stack: each step refers to the previous one.
struct Trail<'t> {
    parent: Option<&'t Trail<'t>>,
    step: Step<'t>,
    /// Go's name of the innermost struct and of the type at this step.
    owner: &'t str,
    /// Whether values are converted rather than decoded, for which upstream has other messages.
    converts: bool,
}

#[derive(Clone, Copy)]
enum Step<'t> {
    Root { version: &'t str },
    Field(&'t str),
    Key(&'t str),
    Index(usize),
}

impl<'t> Trail<'t> {
    fn root(kind: &'t str, version: &'t str) -> Self {
        Self { parent: None, step: Step::Root { version }, owner: kind, converts: false }
    }

    fn then<'s>(&'s self, step: Step<'s>, owner: &'s str) -> Trail<'s>
    where
        't: 's,
    {
        Trail { parent: Some(self), step, owner, converts: self.converts }
    }

    /// `spec.containers[0].image`, as strict decoding names a field.
    fn path(&self) -> String {
        let mut path = self.parent.map(Trail::path).unwrap_or_default();
        match self.step {
            Step::Root { .. } => {}
            Step::Index(index) => path.push_str(&format!("[{index}]")),
            Step::Field(name) | Step::Key(name) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
            }
        }
        path
    }

    /// `spec.containers.image`, as Go's decoder names a field: without keys and indexes.
    fn go_path(&self) -> String {
        let mut path = self.parent.map(Trail::go_path).unwrap_or_default();
        if let Step::Field(name) = self.step {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(name);
        }
        path
    }

    /// Go's message about a value of the wrong type.
    fn mismatch(&self, value: &Value, go_type: &str) -> DecodeError {
        if self.converts {
            return DecodeError::Type(unconvertible(value, go_type));
        }
        let value_type = match value {
            Value::Number(number) if go_type.starts_with("int") => format!("number {number}"),
            other => json_type(other).to_owned(),
        };
        DecodeError::Type(match self.step {
            Step::Root { version } => format!("json: cannot unmarshal {value_type} into Go value of type {version}.{}", self.owner),
            _ => format!("json: cannot unmarshal {value_type} into Go struct field {}.{} of type {go_type}", self.owner, self.go_path()),
        })
    }
}

/// One check of one body.
#[derive(Default)]
struct Walk {
    unknown: Vec<String>,
}

impl Walk {
    fn value(&mut self, schema: &Schema, value: &mut Value, trail: &Trail<'_>) -> Result<(), DecodeError> {
        match schema.shape() {
            Shape::Any => self.free(schema, value, trail),
            Shape::Object => match value {
                Value::Object(map) => self.object(schema, map, trail),
                other => Err(trail.mismatch(other, &go_type(schema))),
            },
            Shape::Map(values) => match value {
                Value::Object(map) => self.map(values, map, trail),
                other => Err(trail.mismatch(other, &go_type(schema))),
            },
            Shape::Array(items) => match value {
                Value::Array(list) => self.list(items, list, trail),
                other => Err(trail.mismatch(other, &go_type(schema))),
            },
            shape => scalar::check(shape, value, trail),
        }
    }

    fn object(&mut self, schema: &Schema, map: &mut Map<String, Value>, trail: &Trail<'_>) -> Result<(), DecodeError> {
        let owner = schema.definition().map_or(trail.owner, short_name);
        let mut outcome = Ok(());
        map.retain(|name, value| {
            if outcome.is_err() {
                return true;
            }
            let trail = trail.then(Step::Field(name), owner);
            match schema.property(name) {
                None => self.drops(&trail),
                Some(_) if value.is_null() => false,
                Some(field) => {
                    outcome = self.value(field, value, &trail);
                    !value.is_null()
                }
            }
        });
        outcome
    }

    /// Records an unknown field. Returns false, because the field is pruned.
    fn drops(&mut self, trail: &Trail<'_>) -> bool {
        if self.unknown.len() < UNKNOWN_MAX {
            self.unknown.push(trail.path());
        }
        false
    }

    fn map(&mut self, values: &Schema, map: &mut Map<String, Value>, trail: &Trail<'_>) -> Result<(), DecodeError> {
        for (key, value) in map.iter_mut() {
            if !fill_null(values, value) {
                continue;
            }
            let trail = trail.then(Step::Key(key), trail.owner);
            self.value(values, value, &trail)?;
            if matches!(values.shape(), Shape::Quantity) {
                scalar::listed_quantity(value);
            }
        }
        map.retain(|_, value| !value.is_null());
        Ok(())
    }

    fn list(&mut self, items: &Schema, list: &mut [Value], trail: &Trail<'_>) -> Result<(), DecodeError> {
        for (index, value) in list.iter_mut().enumerate() {
            if fill_null(items, value) {
                let trail = trail.then(Step::Index(index), trail.owner);
                self.value(items, value, &trail)?;
            }
        }
        Ok(())
    }

    /// Checks only `metadata`: other fields of a custom resource have no schema here.
    fn metadata_only(&mut self, object: &mut Value, kind: &str, version: &str) -> Result<(), DecodeError> {
        let root = Trail::root(kind, version);
        let Value::Object(map) = object else {
            return Err(root.mismatch(object, kind));
        };
        let schema = api_schema::of_gvk("", "v1", "ConfigMap").and_then(|schema| schema.property("metadata"));
        match (schema, map.get_mut("metadata")) {
            (Some(schema), Some(metadata)) if !metadata.is_null() => {
                self.value(schema, metadata, &root.then(Step::Field("metadata"), kind))
            }
            _ => Ok(()),
        }
    }
}

/// The type error of the result of a strategic merge patch; `None` for a valid one. Upstream converts the result to its Go
/// type (`runtime.DefaultUnstructuredConverter`) instead of decoding it.
pub fn conversion_fault(kind: &Kind, mut object: Value) -> Option<DecodeError> {
    let schema = api_schema::of_kind(kind)?;
    let trail = Trail { converts: true, ..Trail::root(&kind.kind, &kind.version) };
    Walk::default().value(schema, &mut object, &trail).err()
}

/// Upstream's message for a value that does not convert to a Go type.
fn unconvertible(value: &Value, go_type: &str) -> String {
    let value_type = match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    };
    match go_type {
        go_type if go_type.starts_with("map[") => format!("cannot restore map from {value_type}"),
        go_type if go_type.starts_with("[]") => format!("cannot restore slice from {value_type}"),
        // Go converts between number types, and whole numbers to text; decoding JSON does not.
        "string" if value_type == "int64" => format!("cannot convert {value_type} to {go_type}"),
        "int32" | "int64" | "float64" if matches!(value_type, "int64" | "float64") => format!("cannot convert {value_type} to {go_type}"),
        "string" | "bool" | "int32" | "int64" | "float64" => format!("unrecognized type: {go_type}"),
        _ => format!("cannot restore struct from: {value_type}"),
    }
}

/// Replaces null in a list or map by Go's zero value; false where the value needs no check.
fn fill_null(schema: &Schema, value: &mut Value) -> bool {
    if !value.is_null() {
        return true;
    }
    *value = match schema.shape() {
        Shape::Object | Shape::Map(_) => Value::Object(Map::new()),
        Shape::Array(_) => Value::Array(Vec::new()),
        Shape::String(_) => Value::from(""),
        Shape::Quantity => Value::from("0"),
        Shape::Integer(_) | Shape::IntOrString | Shape::Number => Value::from(0),
        Shape::Boolean => Value::Bool(false),
        Shape::Any => Value::Null,
    };
    false
}

/// `PodSpec` of `io.k8s.api.core.v1.PodSpec`.
fn short_name(definition: &str) -> &str {
    definition.rsplit('.').next().unwrap_or(definition)
}

/// Go's name of a type: `v1.PodSpec`, `[]v1.Container`, `map[string]string`, `int32`.
fn go_type(schema: &Schema) -> String {
    match schema.shape() {
        Shape::Object | Shape::Any => {
            let name = schema.definition().unwrap_or("object");
            let parts: Vec<&str> = name.rsplitn(3, '.').collect();
            match parts.as_slice() {
                [name, version, ..] => format!("{version}.{name}"),
                _ => name.to_owned(),
            }
        }
        Shape::Map(values) => format!("map[string]{}", go_type(values)),
        Shape::Array(items) => format!("[]{}", go_type(items)),
        shape => scalar::go_type(shape).to_owned(),
    }
}

#[cfg(test)]
mod tests;
