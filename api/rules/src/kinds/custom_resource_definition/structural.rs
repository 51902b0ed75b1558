//! Whether a schema is structural: every node has a type, and junctions (`allOf`, `anyOf`, `oneOf`, `not`) only
//! restrict what is specified outside of them. The rules are those of KEP 1979, the messages upstream's.

use api_model::field::FieldError;
use api_model::zero::is_zero;
use api_schema::regexp::{self, SCHEMA_BYTES_MAX};
use serde_json::{Value, json};

use crate::at::At;
use crate::checks::Checks;

/// How the node is reached; the messages differ.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Keywords that a junction must not contain, each with the message.
const NOT_NESTED: [(&str, &str); 12] = [
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
];

/// Checks a whole schema.
pub fn validate(schema: &At<'_>, checks: &mut Checks) {
    let mut unsorted = Checks::default();
    subschema(schema, Level::Root, &mut unsorted);
    complete(schema, &mut unsorted);
    let mut errors: Vec<FieldError> = unsorted.into_errors();
    errors.sort_by_key(ToString::to_string);
    errors.into_iter().for_each(|error| checks.push(error));
}

fn subschema(schema: &At<'_>, level: Level, checks: &mut Checks) {
    let kind = schema.get("type");
    let items = schema.get("items");
    if kind.text() == "array" && !items.exists() {
        checks.required(&items, "must be specified");
    }
    if is_schema(&items) {
        subschema(&items, Level::Item, checks);
    }
    schema.get("properties").entries().for_each(|(_, property)| subschema(&property, Level::Field, checks));
    let additional = schema.get("additionalProperties");
    if additional.exists() && level == Level::Root {
        checks.forbidden(&additional, "must not be used at the root");
    }
    if is_schema(&additional) {
        subschema(&additional, Level::Field, checks);
    }
    extensions(schema, checks);
    junctions(schema, checks);
    typed(schema, level, checks);
    let has_metadata = level == Level::Root || schema.get("x-kubernetes-embedded-resource").flag();
    if has_metadata {
        meta_fields(schema, level, checks);
    }
}

fn is_schema(at: &At<'_>) -> bool {
    at.value().is_some_and(Value::is_object)
}

fn extensions(schema: &At<'_>, checks: &mut Checks) {
    if schema.get("x-kubernetes-int-or-string").flag() {
        for extension in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if schema.get(extension).flag() {
                checks.invalid(&schema.get(extension), "must be false if x-kubernetes-int-or-string is true");
            }
        }
    }
    let pattern = schema.get("pattern");
    if let Err(error) = regexp::compile(pattern.text(), SCHEMA_BYTES_MAX) {
        checks.invalid(&pattern, format!("must be a valid regular expression, but isn't: {error}"));
    }
}

fn typed(schema: &At<'_>, level: Level, checks: &mut Checks) {
    let kind = schema.get("type");
    let flag = |name: &str| schema.get(name).flag();
    let (is_embedded, keeps) = (flag("x-kubernetes-embedded-resource"), flag("x-kubernetes-preserve-unknown-fields"));
    if is_embedded && kind.text() != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        if kind.text().is_empty() { checks.required(&kind, detail) } else { checks.invalid(&kind, detail) }
    } else if kind.text().is_empty() && !flag("x-kubernetes-int-or-string") && !keeps {
        checks.required(
            &kind,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        );
    }
    if is_embedded && schema.get("additionalProperties").exists() {
        checks.forbidden(&schema.get("additionalProperties"), "must not be used if x-kubernetes-embedded-resource is set");
    }
    if level == Level::Root && !kind.text().is_empty() && kind.text() != "object" {
        checks.invalid(&kind, "must be object at the root");
    }
    if is_embedded && !keeps && schema.get("properties").len() == 0 {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        checks.required(&schema.get("properties"), detail);
    }
}

fn meta_fields(schema: &At<'_>, level: Level, checks: &mut Checks) {
    let properties = schema.get("properties");
    for name in ["kind", "apiVersion"] {
        let property = properties.key(name);
        if property.exists() && property.get("type").text() != "string" {
            checks.invalid(&property.get("type"), "must be string");
        }
    }
    let metadata = properties.key("metadata");
    if !metadata.exists() {
        return;
    }
    if metadata.get("type").text() != "object" {
        checks.invalid(&metadata.get("type"), "must be object");
    }
    let only_names = metadata.get("properties").entries().all(|(name, _)| name == "name" || name == "generateName");
    let mut other = metadata.fields().filter(|field| !matches!(*field, "type" | "properties" | "default"));
    if level == Level::Root && (!only_names || other.next().is_some()) {
        checks.forbidden(&metadata, "must not specify anything other than name and generateName, but metadata is implicitly specified");
    }
}

/// Whether these are the two types of an int-or-string value, which `anyOf` may list.
fn is_int_or_string(any_of: &At<'_>) -> bool {
    any_of.value() == Some(&json!([{"type": "integer"}, {"type": "string"}]))
}

fn junctions(schema: &At<'_>, checks: &mut Checks) {
    for name in ["anyOf", "allOf", "oneOf"] {
        let list = schema.get(name);
        if name == "anyOf" && is_int_or_string(&list) {
            continue;
        }
        for (index, inner) in list.items().enumerate() {
            let spelled = name == "allOf" && index == 0 && is_int_or_string(&inner.get("anyOf"));
            nested(&inner, spelled, checks);
        }
    }
    if schema.get("not").exists() {
        nested(&schema.get("not"), false, checks);
    }
}

/// Checks a schema within a junction.
fn nested(schema: &At<'_>, spelled_types: bool, checks: &mut Checks) {
    if !spelled_types {
        junctions(schema, checks);
    }
    for (field, detail) in NOT_NESTED {
        let at = schema.get(field);
        if at.exists() && !is_zero(&at.value_or_null()) {
            checks.forbidden(&at, detail);
        }
    }
    if schema.get("x-kubernetes-validations").len() > 0 {
        checks.forbidden(&schema.get("x-kubernetes-validations"), "must be empty to be structural");
    }
    if schema.get("items").exists() {
        nested(&schema.get("items"), false, checks);
    }
    schema.get("properties").entries().for_each(|(_, property)| nested(&property, false, checks));
    if schema.get("properties").key("metadata").exists() {
        checks.forbidden(&schema.get("properties").key("metadata"), "must not be specified in a nested context");
    }
}

/// Every field in a junction must also be specified outside of it.
fn complete(schema: &At<'_>, checks: &mut Checks) {
    in_junctions(schema, schema, checks);
    let properties = schema.get("properties").entries().map(|(_, property)| property);
    let inner = ["items", "additionalProperties"].into_iter().map(|name| schema.get(name)).filter(is_schema);
    inner.chain(properties).for_each(|child| complete(&child, checks));
}

fn in_junctions(outer: &At<'_>, schema: &At<'_>, checks: &mut Checks) {
    let listed = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|name| schema.get(name).items());
    for inner in listed.chain([schema.get("not")].into_iter().filter(At::exists)) {
        spoken_of(outer, &inner, checks);
    }
}

fn spoken_of(outer: &At<'_>, inner: &At<'_>, checks: &mut Checks) {
    in_junctions(outer, inner, checks);
    for (name, property) in inner.get("properties").entries() {
        let outer_property = outer.get("properties").key(name);
        let further = outer.get("additionalProperties");
        if outer_property.exists() {
            spoken_of(&outer_property, &property, checks);
        } else if is_schema(&further) {
            spoken_of(&further, &property, checks);
        } else {
            checks.required(&outer_property, &format!("because it is defined in {}", property.path));
        }
    }
    let (items, outer_items) = (inner.get("items"), outer.get("items"));
    if items.exists() && outer_items.exists() {
        spoken_of(&outer_items, &items, checks);
    } else if items.exists() {
        checks.required(&outer_items, &format!("because it is defined in {}", items.path));
    }
}
