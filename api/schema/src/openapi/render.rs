//! Paths and schemas in the syntax of each OpenAPI version.

use serde_json::{Map, Value, json};

use super::definitions::Author;
use super::operations::{Answer, Body, Operation, PathItem};
use super::parameters::Parameter;
use crate::builtin::DEFINITIONS;

const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
/// The extension that lists the kinds of a definition.
const GROUP_VERSION_KIND: &str = "x-kubernetes-group-version-kind";
/// The prefix of references to definitions in OpenAPI v2.
pub(super) const V2_DEFINITIONS: &str = "#/definitions/";

/// A path item of OpenAPI v3.
pub(super) fn v3_path(item: &PathItem) -> Value {
    let mut fields: Map<String, Value> = item.operations.iter().map(|o| (o.method.to_owned(), v3_operation(o))).collect();
    if !item.parameters.is_empty() {
        fields.insert("parameters".to_owned(), item.parameters.iter().map(|p| v3_parameter(p)).collect());
    }
    fields.into()
}

fn v3_operation(operation: &Operation) -> Value {
    let mut fields = common(operation);
    if !operation.parameters.is_empty() {
        fields.insert("parameters".to_owned(), operation.parameters.iter().map(v3_parameter).collect());
    }
    let schema = |name: &str| json!({"schema": {"$ref": format!("{DEFINITIONS}{name}")}});
    let body = match &operation.body {
        Body::Nothing => None,
        Body::Required(name) => Some(json!({"content": {"*/*": schema(name)}, "required": true})),
        Body::Options => Some(json!({"content": {"*/*": schema(DELETE_OPTIONS)}})),
        Body::Patch { strategic } => {
            let content: Map<String, Value> = patch_types(*strategic).iter().map(|t| ((*t).to_owned(), schema(PATCH))).collect();
            Some(json!({"content": content, "required": true}))
        }
    };
    if let Some(body) = body {
        fields.insert("requestBody".to_owned(), body);
    }
    let content =
        |types: &[&str], schema: Value| -> Value { types.iter().map(|t| ((*t).to_owned(), schema.clone())).collect::<Map<_, _>>().into() };
    let content = match &operation.answer {
        Answer::Text => content(&["text/plain"], json!({"schema": {"type": "string"}})),
        Answer::Stream => content(&["*/*"], json!({"schema": {"type": "string"}})),
        Answer::Object(name) | Answer::List(name) => content(answer_types(&operation.answer), schema(name)),
    };
    fields.insert("responses".to_owned(), responses(operation, |fields| fields.insert("content".to_owned(), content.clone())));
    fields.into()
}

fn v3_parameter(parameter: &Parameter) -> Value {
    let mut fields = parameter_common(parameter);
    fields.insert("schema".to_owned(), json!({"type": parameter.kind, "uniqueItems": true}));
    fields.into()
}

/// A path item of OpenAPI v2.
pub(super) fn v2_path(item: &PathItem) -> Value {
    let mut fields: Map<String, Value> = item.operations.iter().map(|o| (o.method.to_owned(), v2_operation(o))).collect();
    if !item.parameters.is_empty() {
        fields.insert("parameters".to_owned(), item.parameters.iter().map(|p| v2_parameter(p)).collect());
    }
    fields.into()
}

fn v2_operation(operation: &Operation) -> Value {
    let mut fields = common(operation);
    let schema = |name: &str| json!({"$ref": format!("{V2_DEFINITIONS}{name}")});
    let body = |name: &str, required: bool| json!({"in": "body", "name": "body", "required": required, "schema": schema(name)});
    let (consumes, body): (&[&str], _) = match &operation.body {
        Body::Nothing => (&["*/*"], None),
        Body::Required(name) => (&["*/*"], Some(body(name, true))),
        Body::Options => (&["*/*"], Some(body(DELETE_OPTIONS, false))),
        Body::Patch { strategic } => (patch_types(*strategic), Some(body(PATCH, true))),
    };
    let parameters: Vec<Value> = body.into_iter().chain(operation.parameters.iter().map(v2_parameter)).collect();
    if !parameters.is_empty() {
        fields.insert("parameters".to_owned(), parameters.into());
    }
    let answer = match &operation.answer {
        Answer::Text | Answer::Stream => json!({"type": "string"}),
        Answer::Object(name) | Answer::List(name) => schema(name),
    };
    fields.insert("consumes".to_owned(), consumes.into());
    fields.insert("produces".to_owned(), answer_types(&operation.answer).into());
    fields.insert("schemes".to_owned(), json!(["https"]));
    fields.insert("responses".to_owned(), responses(operation, |fields| fields.insert("schema".to_owned(), answer.clone())));
    fields.into()
}

fn v2_parameter(parameter: &Parameter) -> Value {
    let mut fields = parameter_common(parameter);
    fields.insert("type".to_owned(), parameter.kind.into());
    fields.insert("uniqueItems".to_owned(), true.into());
    fields.into()
}

/// Converts a definition of OpenAPI v3 to v2. A custom kind with unknown fields at its root becomes a plain object, as
/// upstream: with any properties, `kubectl` would reject all other fields.
pub(super) fn v2_definition(schema: Value, author: Author) -> Value {
    let is_open = schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    if !is_open {
        return v2_schema(schema, author);
    }
    let mut out = json!({"type": "object"});
    if let (Some(fields), Some(kinds)) = (out.as_object_mut(), schema.get(GROUP_VERSION_KIND)) {
        fields.insert(GROUP_VERSION_KIND.to_owned(), kinds.clone());
    }
    out
}

/// Converts a schema of OpenAPI v3 to v2. References take the description beside them. Scalars of two forms become
/// strings. As upstream, defaults and junctions are left out. The enumerations of built-in types are left out too. A
/// schema that allows null or unknown fields gets no type, since `kubectl` would reject such values.
fn v2_schema(schema: Value, author: Author) -> Value {
    let narrowed = |schema: Value| v2_schema(schema, author);
    let Value::Object(fields) = schema else { return schema };
    let is_true = |name: &str| fields.get(name) == Some(&Value::Bool(true));
    let (nullable, open) = (is_true("nullable"), is_true("x-kubernetes-preserve-unknown-fields"));
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
    let bare_list = kind == "array" && (open || !fields.contains_key("items"));
    let untyped = nullable || bare_list || open && kind == "object";
    let is_scalar_of_two_forms = kind.is_empty();
    let mut out = Map::new();
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("$ref", Value::String(target)) => {
                out.insert(name, v2_reference(&target).into());
            }
            ("allOf", Value::Array(parts)) => {
                // A reference with a description beside it. Any other `allOf` only restricts values.
                let is_reference = |part: &Value| part.get("$ref").is_some();
                if let Some(Value::Object(part)) = parts.into_iter().find(is_reference).map(narrowed) {
                    out.extend(part);
                }
            }
            ("oneOf", _) if is_scalar_of_two_forms && !open => {
                out.insert("type".to_owned(), "string".into());
            }
            ("enum", _) if author == Author::Us => {}
            ("default" | "oneOf" | "allOf" | "anyOf" | "not" | "nullable", _) => {}
            ("type", _) if untyped => {}
            ("properties" | "items", _) if nullable || open => {}
            ("properties", Value::Object(properties)) => {
                let properties: Map<String, Value> = properties.into_iter().map(|(name, schema)| (name, narrowed(schema))).collect();
                out.insert(name, properties.into());
            }
            ("items" | "additionalProperties", value) => {
                out.insert(name, narrowed(value));
            }
            (_, value) => {
                out.insert(name, value);
            }
        }
    }
    out.into()
}

fn v2_reference(target: &str) -> String {
    format!("{V2_DEFINITIONS}{}", target.strip_prefix(DEFINITIONS).unwrap_or(target))
}

/// The fields that both versions share.
fn common(operation: &Operation) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("description".to_owned(), operation.description.clone().into());
    fields.insert("operationId".to_owned(), operation.id.clone().into());
    fields.insert("tags".to_owned(), json!([operation.tag]));
    if let Some((action, [group, version, kind])) = &operation.action {
        fields.insert("x-kubernetes-action".to_owned(), (*action).into());
        fields.insert("x-kubernetes-group-version-kind".to_owned(), json!({"group": group, "version": version, "kind": kind}));
    }
    fields
}

fn parameter_common(parameter: &Parameter) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("name".to_owned(), parameter.name.into());
    fields.insert("description".to_owned(), parameter.description.into());
    fields.insert("in".to_owned(), if parameter.in_path { "path" } else { "query" }.into());
    if parameter.in_path {
        fields.insert("required".to_owned(), true.into());
    }
    fields
}

fn responses(operation: &Operation, add: impl Fn(&mut Map<String, Value>) -> Option<Value>) -> Value {
    let mut responses = Map::new();
    for code in operation.codes {
        let words = match code {
            201 => "Created",
            202 => "Accepted",
            _ => "OK",
        };
        let mut fields = Map::new();
        fields.insert("description".to_owned(), words.into());
        add(&mut fields);
        responses.insert(code.to_string(), fields.into());
    }
    responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    responses.into()
}

fn patch_types(strategic: bool) -> &'static [&'static str] {
    let all = &[
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    ];
    if strategic { all } else { &["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"] }
}

fn answer_types(answer: &Answer) -> &'static [&'static str] {
    match answer {
        Answer::Object(_) => &["application/json"],
        Answer::List(_) => &["application/json", "application/json;stream=watch"],
        Answer::Text => &["text/plain"],
        Answer::Stream => &["*/*"],
    }
}
