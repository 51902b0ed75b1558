//! The schema of a custom resource (`openAPIV3Schema`), parsed once, for pruning, defaulting and validation of values. A
//! structural schema (upstream's term) has a type for every value; schemas in `allOf`, `anyOf`, `oneOf` and `not` only
//! restrict values, and have the same Rust type.
//!
//! The parser is lenient: `api-rules` validates the JSON of a schema before it is stored.

use std::collections::BTreeMap;

use api_model::numbers::settled;
use regex::Regex;
use serde_json::{Map, Value};

use crate::regexp::{self, SCHEMA_BYTES_MAX};

/// A schema.
#[derive(Debug, Default)]
pub struct Structural {
    /// OpenAPI type; may be empty.
    pub kind: String,
    /// OpenAPI format; may be empty.
    pub format: String,
    /// Whether null is allowed.
    pub nullable: bool,
    /// The default.
    pub default: Option<Value>,
    /// Known fields.
    pub properties: BTreeMap<String, Structural>,
    /// Fields that are not among the properties.
    pub additional: Additional,
    /// The elements of a list.
    pub items: Option<Box<Structural>>,
    /// `x-kubernetes-preserve-unknown-fields`
    pub preserve_unknown_fields: bool,
    /// `x-kubernetes-embedded-resource`
    pub embedded_resource: bool,
    /// `x-kubernetes-int-or-string`
    pub int_or_string: bool,
    /// `x-kubernetes-list-type`; empty if absent.
    pub list_type: String,
    /// `x-kubernetes-list-map-keys`
    pub list_map_keys: Vec<String>,
    /// `x-kubernetes-map-type`; empty if absent.
    pub map_type: String,
    /// `x-kubernetes-validations`
    pub rules: Vec<ValidationRule>,
    /// Required fields.
    pub required: Vec<String>,
    /// The allowed values; empty means any value.
    pub enumeration: Vec<Value>,
    /// Limits of numbers, texts, lists and maps.
    pub limits: Limits,
    /// The pattern of texts.
    pub pattern: Option<Pattern>,
    /// All of these schemas must match.
    pub all_of: Vec<Structural>,
    /// At least one of these schemas must match.
    pub any_of: Vec<Structural>,
    /// Exactly one of these schemas must match.
    pub one_of: Vec<Structural>,
    /// This schema must not match.
    pub not: Option<Box<Structural>>,
}

/// Fields that are not among the properties.
#[derive(Debug, Default)]
pub enum Additional {
    /// Not specified: the fields are pruned.
    #[default]
    Unsaid,
    /// `true`: the fields are allowed. In objects below them, the fields are pruned.
    Any,
    /// `false`: the fields are not allowed.
    Forbidden,
    /// The fields have this schema.
    Schema(Box<Structural>),
}

/// Limits of a value.
#[derive(Debug, Default, PartialEq)]
pub struct Limits {
    /// The minimum.
    pub minimum: Option<f64>,
    /// Whether the minimum itself is excluded.
    pub exclusive_minimum: bool,
    /// The maximum.
    pub maximum: Option<f64>,
    /// Whether the maximum itself is excluded.
    pub exclusive_maximum: bool,
    /// The factor that numbers must be a multiple of.
    pub multiple_of: Option<f64>,
    /// The minimum of characters of a text.
    pub min_length: Option<u64>,
    /// The maximum of characters of a text.
    pub max_length: Option<u64>,
    /// The minimum of elements of a list.
    pub min_items: Option<u64>,
    /// The maximum of elements of a list.
    pub max_items: Option<u64>,
    /// The minimum of entries of a map.
    pub min_properties: Option<u64>,
    /// The maximum of entries of a map.
    pub max_properties: Option<u64>,
}

/// A pattern, and its compiled form.
#[derive(Debug)]
pub struct Pattern {
    /// The text.
    pub text: String,
    /// The compiled pattern; `None` for an invalid pattern, which no stored definition has.
    pub regex: Option<Regex>,
}

/// One of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidationRule {
    /// The CEL expression that must be true.
    pub rule: String,
    /// The message of a failed rule; may be empty.
    pub message: String,
    /// A CEL expression for the message; may be empty.
    pub message_expression: String,
    /// The reason of the error; may be empty.
    pub reason: String,
    /// The field of the error, relative to the schema of the rule; may be empty.
    pub field_path: String,
    /// Whether the rule also runs without an old value.
    pub optional_old_self: bool,
}

impl Structural {
    /// Parses a schema.
    pub fn parse(json: &Value) -> Self {
        let empty = Map::new();
        let map = json.as_object().unwrap_or(&empty);
        let text = |name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let flag = |name: &str| map.get(name).and_then(Value::as_bool).unwrap_or_default();
        let list = |name: &str| map.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let schemas = |name: &str| list(name).iter().map(Self::parse).collect();
        let texts = |name: &str| list(name).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let properties = map.get("properties").and_then(Value::as_object).into_iter().flatten();
        Self {
            kind: text("type"),
            format: text("format"),
            nullable: flag("nullable"),
            default: map.get("default").filter(|default| !default.is_null()).map(settled),
            properties: properties.map(|(name, json)| (name.clone(), Self::parse(json))).collect(),
            additional: Additional::parse(map.get("additionalProperties")),
            items: map.get("items").map(|items| Box::new(Self::parse(items))),
            preserve_unknown_fields: flag("x-kubernetes-preserve-unknown-fields"),
            embedded_resource: flag("x-kubernetes-embedded-resource"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            list_type: text("x-kubernetes-list-type"),
            list_map_keys: texts("x-kubernetes-list-map-keys"),
            map_type: text("x-kubernetes-map-type"),
            rules: list("x-kubernetes-validations").iter().map(ValidationRule::parse).collect(),
            required: texts("required"),
            enumeration: list("enum").iter().map(settled).collect(),
            limits: Limits::parse(map),
            pattern: map.get("pattern").and_then(Value::as_str).filter(|text| !text.is_empty()).map(Pattern::new),
            all_of: schemas("allOf"),
            any_of: schemas("anyOf"),
            one_of: schemas("oneOf"),
            not: map.get("not").map(|not| Box::new(Self::parse(not))),
        }
    }

    /// The schema of a field: the field's own schema, else the schema of additional fields.
    pub fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(match &self.additional {
            Additional::Schema(schema) => Some(schema),
            _ => None,
        })
    }
}

impl Structural {
    /// The direct child schemas, without those of `allOf`, `anyOf`, `oneOf` and `not`.
    pub fn children(&self) -> impl Iterator<Item = &Self> {
        let further = match &self.additional {
            Additional::Schema(schema) => Some(&**schema),
            _ => None,
        };
        self.properties.values().chain(further).chain(self.items.as_deref())
    }
}

impl Additional {
    fn parse(json: Option<&Value>) -> Self {
        match json {
            None | Some(Value::Null) => Self::Unsaid,
            Some(Value::Bool(true)) => Self::Any,
            Some(Value::Bool(false)) => Self::Forbidden,
            Some(schema) => Self::Schema(Box::new(Structural::parse(schema))),
        }
    }
}

impl Limits {
    fn parse(map: &Map<String, Value>) -> Self {
        let number = |name: &str| map.get(name).and_then(Value::as_f64);
        let count = |name: &str| map.get(name).and_then(Value::as_u64);
        let flag = |name: &str| map.get(name).and_then(Value::as_bool).unwrap_or_default();
        Self {
            minimum: number("minimum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            maximum: number("maximum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
        }
    }
}

impl Pattern {
    fn new(text: &str) -> Self {
        Self { text: text.to_owned(), regex: regexp::compile(text, SCHEMA_BYTES_MAX).ok() }
    }
}

impl ValidationRule {
    fn parse(json: &Value) -> Self {
        let text = |name: &str| json.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            rule: text("rule"),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: text("reason"),
            field_path: text("fieldPath"),
            optional_old_self: json.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests;
