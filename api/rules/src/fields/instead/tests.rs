//! Values that are allowed instead of a schema, and other values without a schema.

use std::collections::BTreeSet;

use api_model::kind::builtin;
use api_schema::Shape;
use serde_json::json;

use super::*;
use crate::fields::{FieldValidation, check_fields};

/// A definition with that schema after the check.
fn checked(schema: Value) -> Result<Value, String> {
    stored(json!({"openAPIV3Schema": schema}), json!({})).map(|version| version["schema"]["openAPIV3Schema"].clone())
}

fn stored(schema: Value, subresources: Value) -> Result<Value, String> {
    let kind = api_model::kind::find("apiextensions.k8s.io", "customresourcedefinitions").expect("served");
    let mut object = json!({"spec": {"versions": [{"schema": schema, "subresources": subresources}]}});
    check_fields(kind, &mut object, &[], FieldValidation::Strict).map_err(|error| error.to_string())?;
    Ok(object["spec"]["versions"][0].clone())
}

#[test]
fn what_may_stand_instead_of_a_schema_stays() {
    for schema in [
        json!({"additionalProperties": true, "additionalItems": false}),
        json!({"additionalProperties": {"type": "string", "maxLength": i64::MAX, "maximum": u64::MAX}}),
        json!({"items": {"items": {"type": "string"}}}),
        json!({"items": [{"type": "string"}, {"additionalProperties": false}]}),
        json!({"dependencies": {"a": ["b"], "b": {"type": "object"}}}),
        json!({"default": true, "enum": ["x", null, {"y": null}], "example": 1}),
    ] {
        assert_eq!(checked(schema.clone()), Ok(schema));
    }
}

#[test]
fn what_is_neither_schema_nor_list_counts_as_nothing() {
    for nothing in [json!(true), json!("x"), json!(12), json!([]), json!(null)] {
        assert_eq!(checked(json!({"type": "object", "items": nothing})), Ok(json!({"type": "object"})), "{nothing}");
        assert_eq!(checked(json!({"not": {"items": nothing}})), Ok(json!({"not": {}})), "{nothing}");
        assert_eq!(checked(json!({"dependencies": {"a": nothing}})), Ok(json!({"dependencies": {}})), "{nothing}");
    }
    let nulls = json!({"items": [null, {"items": 1}], "dependencies": {"a": [null]}});
    assert_eq!(checked(nulls), Ok(json!({"items": [{}, {}], "dependencies": {"a": [""]}})));
}

#[test]
fn unknown_fields_in_it_go_in_silence() {
    let schema = json!({"items": {"type": "string", "foo": 1}, "additionalProperties": {"items": [{"bar": 1}]}});
    assert_eq!(checked(schema), Ok(json!({"items": {"type": "string"}, "additionalProperties": {"items": [{}]}})));
}

#[test]
fn rejects_impossible_values_in_gos_words() {
    let message = |schema: Value| checked(schema).expect_err("refused");
    let mut lines: Vec<String> = [
        json!({"additionalProperties": "x"}),
        json!({"additionalItems": []}),
        json!({"items": {"properties": {"a": {"additionalProperties": 1}}}}),
        json!({"items": {"maxLength": u64::MAX}}),
        json!({"items": {"maxLength": "1"}}),
        json!({"items": {"properties": {"a": {"maximum": "1"}}}}),
        json!({"items": ["x"]}),
        json!({"additionalProperties": {"properties": []}}),
        json!({"dependencies": {"a": [1]}}),
    ]
    .into_iter()
    .map(message)
    .collect();
    lines.push(stored(json!({}), json!({"status": true})).expect_err("refused"));
    lines.push(stored(json!({}), json!({"status": {"foo": 1}})).expect_err("refused"));
    insta::assert_snapshot!(lines.join("\n"));
}

/// A value that is added to this list needs a rule for its allowed forms.
#[test]
fn these_are_the_values_whose_schema_says_nothing() {
    let mut names = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for kind in builtin() {
        free_of(api_schema::of_kind(kind).expect("a schema"), &kind.kind, &mut seen, &mut names);
    }
    insta::assert_snapshot!(Vec::from_iter(names).join("\n"), @r"
    AllCompositeDisruptionMode
    AllDisruptionMode
    BasicSchedulingPolicy
    CompositeBasicSchedulingPolicy
    CustomResourceSubresourceStatus
    FieldsV1
    JSON
    JSONSchemaPropsOrArray
    JSONSchemaPropsOrBool
    JSONSchemaPropsOrStringArray
    RawExtension
    SingleCompositeDisruptionMode
    SingleDisruptionMode
    WorkloadPodGroupAllDisruptionMode
    WorkloadPodGroupBasicSchedulingPolicy
    WorkloadPodGroupSingleDisruptionMode
    ");
}

fn free_of(schema: &Schema, name: &str, seen: &mut BTreeSet<String>, names: &mut BTreeSet<String>) {
    if schema.definition().is_some_and(|definition| !seen.insert(definition.to_owned())) {
        return;
    }
    match schema.shape() {
        Shape::Any => drop(names.insert(schema.definition().map_or(name, short_name).to_owned())),
        Shape::Map(inner) | Shape::Array(inner) => free_of(inner, name, seen, names),
        Shape::Object => schema.properties().for_each(|(name, field)| free_of(field, name, seen, names)),
        _ => {}
    }
}
