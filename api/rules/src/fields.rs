//! A body against its kind's schema: unknown fields go, wrong types are refused, and quantities,
//! times and base64 are brought to the writing that upstream stores.
//!
//! Words are those of Go's JSON decoder, since `kubectl` shows them as they are:
//! `json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32`.

mod custom;
mod instead;
mod scalar;
mod time;

use api_model::go::json_type;
use api_model::kind::Kind;
use api_schema::{Schema, Shape};
use serde_json::{Map, Value};

use crate::decode::{DecodeError, Duplicate, yaml_complaint};
use crate::prune::SchemaNode;

/// Unknown fields reported; the rest is pruned in silence.
const UNKNOWN_MAX: usize = 100;

/// What to do about unknown and duplicate fields: the `fieldValidation` query parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Prune in silence.
    Ignore,
    /// Prune, and warn: what the server does when nothing is asked.
    #[default]
    Warn,
    /// Refuse the request.
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

/// Checks an object of a kind, and changes it in place: unknown fields and nulls go, quantities and
/// times get their stored writing. Answers warnings. Of custom resources only the metadata must have the
/// right types: their own fields are pruned here and checked when they are validated. Whole numbers in them become integers.
pub fn check_fields(kind: &Kind, object: &mut Value, duplicates: &[Duplicate], mode: FieldValidation) -> Result<Vec<String>, DecodeError> {
    let Some(schema) = api_schema::structural(kind) else {
        return check_body(&kind.group, &kind.version, &kind.kind, object, duplicates, mode);
    };
    let mut walk = Walk::default();
    api_schema::settle_numbers(object);
    walk.metadata_only(object, &kind.kind, &kind.version)?;
    walk.custom(SchemaNode::root(schema), object, &Trail::root(&kind.kind, &kind.version))?;
    told(&walk, duplicates, mode)
}

/// The same for a body named by group, version and kind: `Scale`, `Eviction`, `DeleteOptions`, …
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
    told(&walk, duplicates, mode)
}

/// What is said of unknown and duplicate fields. Upstream's decoder of YAML goes before that of JSON, which finds
/// the unknown ones.
fn told(walk: &Walk, duplicates: &[Duplicate], mode: FieldValidation) -> Result<Vec<String>, DecodeError> {
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

/// How the walk came to where it is, kept on the stack: each step knows the one before.
struct Trail<'t> {
    parent: Option<&'t Trail<'t>>,
    step: Step<'t>,
    /// Go's name of the innermost struct, and of the type here.
    owner: &'t str,
    /// Whether values are converted rather than decoded, of which upstream speaks in other words.
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

    /// Go's complaint about a value of the wrong type here.
    fn mismatch(&self, value: &Value, go_type: &str) -> DecodeError {
        if self.converts {
            return DecodeError::Type(unconvertible(value, go_type));
        }
        let found = match value {
            Value::Number(number) if go_type.starts_with("int") => format!("number {number}"),
            other => json_type(other).to_owned(),
        };
        DecodeError::Type(match self.step {
            Step::Root { version } => format!("json: cannot unmarshal {found} into Go value of type {version}.{}", self.owner),
            _ => format!("json: cannot unmarshal {found} into Go struct field {}.{} of type {go_type}", self.owner, self.go_path()),
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

    /// Notes a field that nobody knows; false, since it does not stay.
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

    /// A custom resource: what is in `metadata` has a schema, the rest is free.
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

/// What is wrong with the types of an object that a strategic merge patch made: upstream converts it to its Go type
/// (`runtime.DefaultUnstructuredConverter`), where everything else is decoded. None where nothing is.
pub fn conversion_fault(kind: &Kind, mut object: Value) -> Option<DecodeError> {
    let schema = api_schema::of_kind(kind)?;
    let trail = Trail { converts: true, ..Trail::root(&kind.kind, &kind.version) };
    Walk::default().value(schema, &mut object, &trail).err()
}

/// Upstream's words for a value that does not become one of a Go type.
fn unconvertible(value: &Value, go_type: &str) -> String {
    let found = match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    };
    match go_type {
        go_type if go_type.starts_with("map[") => format!("cannot restore map from {found}"),
        go_type if go_type.starts_with("[]") => format!("cannot restore slice from {found}"),
        // Go converts numbers to each other, and whole ones to text, which JSON does not.
        "string" if found == "int64" => format!("cannot convert {found} to {go_type}"),
        "int32" | "int64" | "float64" if matches!(found, "int64" | "float64") => format!("cannot convert {found} to {go_type}"),
        "string" | "bool" | "int32" | "int64" | "float64" => format!("unrecognized type: {go_type}"),
        _ => format!("cannot restore struct from: {found}"),
    }
}

/// Puts Go's zero value where a list or map holds null; false where there is nothing to check then.
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

/// Go's spelling of a type: `v1.PodSpec`, `[]v1.Container`, `map[string]string`, `int32`.
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
