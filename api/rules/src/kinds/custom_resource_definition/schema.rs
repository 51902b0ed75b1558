//! One `openAPIV3Schema`: the allowed keywords of JSON schema, and the extensions for lists and maps.
//! `structural.rs` checks that the schema is structural.

use std::collections::BTreeSet;

use api_model::field::FieldError;
use api_schema::Structural;

use super::{expressions, structural};
use crate::at::At;
use crate::checks::Checks;
use crate::custom;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
/// Keywords of JSON schema that no definition may use.
const UNSUPPORTED: [&str; 6] = ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];
/// The keywords that the root may use when the status is a subresource, in upstream's order and with Go's names.
const AT_ROOT: [(&str, &str); 21] = [
    ("Description", "description"),
    ("Type", "type"),
    ("Format", "format"),
    ("Title", "title"),
    ("Maximum", "maximum"),
    ("ExclusiveMaximum", "exclusiveMaximum"),
    ("Minimum", "minimum"),
    ("ExclusiveMinimum", "exclusiveMinimum"),
    ("MaxLength", "maxLength"),
    ("MinLength", "minLength"),
    ("Pattern", "pattern"),
    ("MaxItems", "maxItems"),
    ("MinItems", "minItems"),
    ("UniqueItems", "uniqueItems"),
    ("MultipleOf", "multipleOf"),
    ("Required", "required"),
    ("Items", "items"),
    ("Properties", "properties"),
    ("ExternalDocs", "externalDocs"),
    ("Example", "example"),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields"),
];
/// The last allowed keyword after [`AT_ROOT`].
const VALIDATIONS: &str = "x-kubernetes-validations";
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Checks the schema of one version.
pub fn validate(schema: &At<'_>, has_status: bool, checks: &mut Checks) {
    if !schema.exists() {
        return;
    }
    if has_status {
        root_of_status(schema, checks);
    }
    if schema.get("nullable").flag() {
        checks.push(FieldError::forbidden(&schema.path.child("nullable"), "nullable cannot be true at the root"));
    }
    let before = checks.count();
    structural::validate(schema, checks);
    if checks.count() == before {
        defaults(schema, true, checks);
    }
    subschema(schema, Within::default(), checks);
    if checks.count() == before {
        expressions::validate(schema, checks);
    }
}

/// Warnings about unknown formats, which no server checks.
pub fn warnings(object: &At<'_>) -> Vec<String> {
    let mut unknown = BTreeSet::new();
    for version in object.find("spec.versions").items() {
        unknown_formats(&version.find("schema.openAPIV3Schema"), &mut unknown);
    }
    unknown.into_iter().map(|format| format!("unrecognized format {format:?}")).collect()
}

fn unknown_formats(schema: &At<'_>, unknown: &mut BTreeSet<String>) {
    let format = schema.get("format").text();
    if !custom::is_known_format(format) {
        unknown.insert(format.to_owned());
    }
    children(schema).iter().for_each(|child| unknown_formats(child, unknown));
}

fn root_of_status(schema: &At<'_>, checks: &mut Checks) {
    let kind = schema.get("type");
    if kind.text() != "object" {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        checks.invalid_value(&kind.path, kind.text(), detail);
    }
    let is_allowed = |field: &str| field == VALIDATIONS || AT_ROOT.iter().any(|(_, json)| *json == field);
    if !schema.fields().all(is_allowed) {
        let names: Vec<&str> = AT_ROOT.iter().map(|(go, _)| *go).chain(["XValidations"]).collect();
        let detail =
            format!("only [{}] fields are allowed at the root of the schema if the status subresource is enabled", names.join(" "));
        checks.invalid(schema, detail);
    }
}

/// Every direct child of a schema.
fn children<'a>(schema: &At<'a>) -> Vec<At<'a>> {
    let one = ["items", "not", "additionalProperties"].into_iter().map(|name| schema.get(name));
    let listed = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|name| schema.get(name).items());
    let named = schema.get("properties").entries().map(|(_, property)| property);
    one.chain(listed).chain(named).filter(|child| child.value().is_some_and(|child| child.is_object())).collect()
}

/// The position of a schema in the whole schema.
#[derive(Clone, Copy, Default)]
struct Within<'w> {
    /// Whether the schema is below `apiVersion`, `kind` or `metadata` of an object.
    in_meta: bool,
    /// Why defaults are forbidden here; empty where they are allowed.
    no_defaults: &'w str,
}

fn subschema(schema: &At<'_>, within: Within<'_>, checks: &mut Checks) {
    words(schema, within, checks);
    let additional = schema.get("additionalProperties");
    if additional.exists() && schema.get("properties").len() > 0 && additional.value() != Some(&true.into()) {
        checks.forbidden(&additional, "additionalProperties and properties are mutual exclusive");
    }
    let is_embedded = schema.get("x-kubernetes-embedded-resource").flag();
    for child in children(schema) {
        subschema(&child, within.below(schema, &child, is_embedded), checks);
    }
    extensions(schema, checks);
    list_map(schema, checks);
    for (index, rule) in schema.get(VALIDATIONS).items().enumerate() {
        validation_rule(schema, index, &rule, checks);
    }
}

impl<'w> Within<'w> {
    /// The position of `child` in `parent`, where `self` is the position of `parent`.
    fn below(self, parent: &At<'_>, child: &At<'_>, parent_is_embedded: bool) -> Self {
        let meta = ["apiVersion", "kind", "metadata"].into_iter().find(|name| child.path == parent.get("properties").key(name).path);
        let parent_is_root = parent.path.to_string().ends_with("openAPIV3Schema");
        match meta {
            Some(name) if parent_is_root => Within {
                in_meta: true,
                no_defaults: match name {
                    "apiVersion" => "in top-level apiVersion",
                    "kind" => "in top-level kind",
                    _ => "in top-level metadata",
                },
            },
            Some(_) if parent_is_embedded => Within { in_meta: true, ..self },
            _ if self.in_meta && child.path == parent.get("additionalProperties").path => {
                Within { no_defaults: "inside additionalProperties applying to object metadata", ..self }
            }
            _ => self,
        }
    }
}

fn words(schema: &At<'_>, within: Within<'_>, checks: &mut Checks) {
    let kind = schema.get("type");
    if kind.text() == "null" {
        checks.forbidden(&kind, "type cannot be set to null, use nullable as an alternative");
    } else if !kind.text().is_empty() && !TYPES.contains(&kind.text()) {
        checks.not_supported(&kind, &TYPES);
    }
    if schema.get("default").exists() && !within.no_defaults.is_empty() {
        checks.forbidden(&schema.get("default"), format!("must not be set {}", within.no_defaults));
    }
    for field in UNSUPPORTED {
        if schema.get(field).exists() {
            checks.forbidden(&schema.get(field), format!("{field} is not supported"));
        }
    }
    if schema.get("items").value().is_some_and(|items| items.is_array()) {
        checks.forbidden(&schema.get("items"), "items must be a schema object and not an array");
    }
    let embedded = schema.get("x-kubernetes-embedded-resource");
    if within.in_meta && embedded.flag() {
        checks.forbidden(&embedded, "must not be used inside of resource meta");
    }
    if schema.get("uniqueItems").flag() {
        checks.forbidden(&schema.get("uniqueItems"), "uniqueItems cannot be set to true since the runtime complexity becomes quadratic");
    }
}

fn extensions(schema: &At<'_>, checks: &mut Checks) {
    let preserve = schema.get("x-kubernetes-preserve-unknown-fields");
    if preserve.exists() && !preserve.flag() {
        checks.invalid(&preserve, "must be true or undefined");
    }
    let (map_type, list_type) = (schema.get("x-kubernetes-map-type"), schema.get("x-kubernetes-list-type"));
    bound_to(schema, &map_type, "object", &["atomic", "granular"], checks);
    bound_to(schema, &list_type, "array", &["atomic", "set", "map"], checks);
    if list_type.text() == "set" && schema.get("type").text() == "array" {
        let items = schema.get("items");
        let (inner_list, inner_map) = (items.get("x-kubernetes-list-type"), items.get("x-kubernetes-map-type"));
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        match items.get("type").text() {
            "array" if inner_list.exists() && inner_list.text() != "atomic" => checks.invalid(&inner_list, detail),
            "object" if inner_map.text() != "atomic" => checks.invalid(&inner_map, detail),
            _ => {}
        }
    }
}

fn bound_to(schema: &At<'_>, extension: &At<'_>, wanted: &str, values: &[&str], checks: &mut Checks) {
    if !extension.exists() {
        return;
    }
    let (kind, name) = (schema.get("type"), if wanted == "array" { "x-kubernetes-list-type" } else { "x-kubernetes-map-type" });
    let detail = format!("must be {wanted} if {name} is specified");
    match kind.text() {
        "" => checks.required(&kind, &detail),
        text if text != wanted => checks.invalid(&kind, detail),
        _ => {}
    }
    if !values.contains(&extension.text()) {
        checks.not_supported(extension, values);
    }
}

/// The keys of a list of type `map` must be scalars, and every element must have them.
fn list_map(schema: &At<'_>, checks: &mut Checks) {
    let (list_type, keys, items) = (schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys"), schema.get("items"));
    if keys.len() > 0 && list_type.text() != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        if list_type.exists() { checks.invalid(&list_type, detail) } else { checks.required(&list_type, detail) }
    }
    if matches!(list_type.text(), "map" | "set") && items.get("nullable").flag() {
        checks.forbidden(&items.get("nullable"), format!("cannot be nullable when x-kubernetes-list-type is {}", list_type.text()));
    }
    if list_type.text() != "map" {
        return;
    }
    if keys.len() == 0 {
        checks.required(&keys, "must not be empty if x-kubernetes-list-type is map");
    }
    if !items.exists() {
        checks.required(&items, "must have a schema if x-kubernetes-list-type is map");
    } else if items.get("type").text() != "object" {
        checks.invalid_value(
            &items.get("type").path,
            items.get("type").text(),
            "must be object if parent array's x-kubernetes-list-type is map",
        );
    }
    let mut seen = BTreeSet::new();
    for key in keys.texts() {
        let property = items.get("properties").key(key);
        if !property.exists() {
            checks.invalid(&keys, "entries must all be names of item properties");
        } else if matches!(property.get("type").text(), "array" | "object") {
            checks.invalid(&property.get("type"), "must be a scalar type if parent array's x-kubernetes-list-type is map");
        }
        if !seen.insert(key) {
            checks.invalid(&keys, "must not contain duplicate entries");
        }
        let is_required = items.get("required").texts().any(|required| required == key);
        if property.exists() && !is_required && !property.get("default").exists() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            checks.required(&property.get("default"), detail);
        }
        if property.get("nullable").flag() {
            checks.forbidden(&property.get("nullable"), "this property is in x-kubernetes-list-map-keys, so it cannot be nullable");
        }
    }
}

fn validation_rule(schema: &At<'_>, index: usize, rule: &At<'_>, checks: &mut Checks) {
    let at = |field: &str| At::new(rule.get(field).value(), schema.path.child(VALIDATIONS).index(index).child(field));
    let (expression, message, message_expression) = (at("rule"), at("message"), at("messageExpression"));
    let is_blank = |at: &At<'_>| !at.text().is_empty() && at.text().trim().is_empty();
    let has_breaks = |text: &str| text.trim().contains(['\n', '\r']);
    if expression.text().trim().is_empty() {
        checks.required(&expression, "rule is not specified");
    } else if is_blank(&message) {
        checks.invalid(&message, "must be non-empty if specified");
    } else if has_breaks(message.text()) {
        checks.invalid(&message, "must not contain line breaks");
    } else if has_breaks(expression.text()) && message.text().trim().is_empty() {
        checks.required(&message, "message must be specified if rule contains line breaks");
    }
    if is_blank(&message_expression) {
        checks.required(&message_expression, "messageExpression must be non-empty if specified");
    }
    let (reason, field_path) = (at("reason"), at("fieldPath"));
    if !reason.text().is_empty() && !REASONS.contains(&reason.text()) {
        checks.not_supported(&reason, &REASONS);
    }
    if is_blank(&field_path) {
        checks.invalid(&field_path, "must be non-empty if specified");
    }
    if field_path.text().contains(['\n', '\r']) {
        checks.invalid(&field_path, "must not contain line breaks");
    }
}

/// A default must be valid for its own schema.
fn defaults(schema: &At<'_>, is_root: bool, checks: &mut Checks) {
    let default = schema.get("default");
    if let (Some(json), Some(value)) = (schema.value(), default.value()) {
        let structural = Structural::parse(json);
        if custom::is_pruned(&structural, value) {
            checks.invalid(&default, "must not have unknown fields");
        }
        for error in custom::validate_default(&structural, value) {
            checks.push(FieldError { path: default.path.join(&error.path), ..error });
        }
    }
    let structural_children = ["items", "additionalProperties"].into_iter().map(|name| schema.get(name));
    let properties = schema.get("properties").entries().map(|(_, property)| property);
    let meta = |child: &At<'_>| {
        is_root && ["apiVersion", "kind", "metadata"].iter().any(|name| child.path == schema.get("properties").key(name).path)
    };
    for child in structural_children.chain(properties).filter(|child| child.value().is_some_and(|child| child.is_object())) {
        if !meta(&child) {
            defaults(&child, false, checks);
        }
    }
}
