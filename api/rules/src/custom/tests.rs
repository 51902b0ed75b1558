//! Custom objects against their schemas.

use std::sync::Arc;

use api_model::kind::{Custom, Kind, ScalePaths};
use serde_json::{Value, json};

use crate::testing::{create_problems, read, table};
use crate::{FieldValidation, check_fields, validate_update};

fn widgets(schema: &str) -> Kind {
    let schema = serde_yaml::from_str(schema).expect("yaml");
    Kind {
        group: "example.com".to_owned(),
        plural: "widgets".to_owned(),
        kind: "Widget".to_owned(),
        custom: Some(Arc::new(Custom { schema, ..Custom::default() })),
        ..crate::testing::kind("", "configmaps").clone()
    }
}

const SCHEMA: &str = r"
type: object
required: [spec]
properties:
  spec:
    type: object
    required: [size]
    maxProperties: 20
    properties:
      size: {type: integer, minimum: 1, maximum: 10, default: 3}
      half: {type: number, multipleOf: 0.5, exclusiveMinimum: true, minimum: 0}
      small: {type: integer, format: int32}
      name: {type: string, minLength: 2, maxLength: 5, pattern: '^[a-z]+$'}
      color: {type: string, enum: [red, green]}
      at: {type: string, format: date-time}
      maybe: {type: string, nullable: true}
      port: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
      parts:
        type: array
        minItems: 1
        maxItems: 2
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [name]
        items: {type: object, required: [name], properties: {name: {type: string}, count: {type: integer, default: 1, maximum: 5}}}
      tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
      labels: {type: object, additionalProperties: {type: string}}
      one: {type: object, oneOf: [{required: [a]}, {required: [b]}], properties: {a: {type: string}, b: {type: string}}}
      any: {type: object, anyOf: [{required: [a]}, {required: [b]}], properties: {a: {type: string}, b: {type: string}}}
      all: {type: object, allOf: [{required: [a]}], not: {required: [b]}, properties: {a: {type: string}, b: {type: string}}}
      free: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {known: {type: object, properties: {a: {type: string}}}}}
      template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
";

#[test]
fn values_are_refused_in_upstreams_words() {
    let kind = widgets(SCHEMA);
    let cases = [
        "spec: {}",
        "metadata: {name: x}",
        "spec: {size: big}",
        "spec: {size: 0, half: 0.3, small: 3000000000}",
        "spec: {size: 11, half: 0}",
        "spec: {size: 1.5}",
        "spec: {name: x}",
        "spec: {name: TOOLONG}",
        "spec: {color: blue, at: yesterday}",
        "spec: {maybe: null, color: null}",
        "spec: {port: true}",
        "spec: {port: 80}",
        "spec: {port: http}",
        "spec: {parts: []}",
        "spec: {parts: [{name: a}, {name: b}, {name: a, count: 6}]}",
        "spec: {parts: [{count: 2}]}",
        "spec: {parts: text}",
        "spec: {tags: [a, b, a]}",
        "spec: {labels: {a: 1}}",
        "spec: {one: {}}",
        "spec: {one: {a: x, b: y}}",
        "spec: {any: {}}",
        "spec: {all: {b: x}}",
        "spec: {template: {metadata: {labels: {'a b': c}}}}",
        "spec: []",
    ];
    insta::assert_snapshot!(table(&cases, |case| create_problems(&kind, case)));
}

#[test]
fn unknown_fields_go_and_defaults_come() {
    let kind = widgets(SCHEMA);
    let mut object = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a", "unknown": 1}, "extra": true,
        "spec": {
            "other": 1, "maybe": null, "color": null,
            "parts": [{"name": "a", "more": {"x": 1}}],
            "labels": {"any": "thing"},
            "free": {"x": {"y": 1}, "known": {"a": "1", "b": 2}},
            "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "nothing": 1}, "spec": {"x": 1}},
        },
    });
    let warnings =
        check_fields(&kind, &mut object, &[crate::Duplicate::Path("spec.size".to_owned())], FieldValidation::Warn).expect("types fit");
    crate::default(&kind, &mut object);
    insta::assert_json_snapshot!(json!({"object": object, "warnings": warnings}));
    let mut again = object.clone();
    crate::default(&kind, &mut again);
    assert_eq!(again, object);
    let mut strict = json!({"metadata": {"name": "a"}, "spec": {"other": 1}});
    let refused = check_fields(&kind, &mut strict, &[], FieldValidation::Strict).expect_err("unknown field");
    assert_eq!(refused.to_string(), "strict decoding error: unknown field \"spec.other\"");
}

#[test]
fn what_was_wrong_before_may_stay_wrong() {
    let kind = widgets(SCHEMA);
    let object = |fields: Value| {
        let mut spec = json!({"size": 1, "name": "TOOLONG", "parts": [{"name": "a", "count": 9}]});
        spec.as_object_mut().expect("a map").extend(fields.as_object().cloned().expect("a map"));
        json!({"metadata": {"name": "a", "namespace": "default", "resourceVersion": "1"}, "spec": spec})
    };
    let old = object(json!({}));
    let problems = |new: Value| -> Vec<String> { validate_update(&kind, None, &new, &old).iter().map(ToString::to_string).collect() };
    assert_eq!(problems(object(json!({"size": 2}))), Vec::<String>::new());
    assert_eq!(problems(object(json!({"parts": [{"name": "b"}, {"name": "a", "count": 9}]}))), Vec::<String>::new());
    assert_eq!(problems(object(json!({"name": "OTHERS"}))).len(), 2);
    assert_eq!(
        problems(object(json!({"parts": [{"name": "a", "count": 8}]}))),
        ["spec.parts[0].count: Invalid value: 8: spec.parts[0].count in body should be less than or equal to 5"]
    );
}

#[test]
fn a_scale_is_read_and_written_where_the_definition_says() {
    let mut kind = widgets("{type: object, x-kubernetes-preserve-unknown-fields: true}");
    let scale = ScalePaths {
        spec_replicas: "spec.deep.count".to_owned(),
        status_replicas: "status.count".to_owned(),
        label_selector: "status.selector".to_owned(),
    };
    kind.custom = Some(Arc::new(Custom { scale: Some(scale), ..Custom::default() }));
    kind.subresources = vec![api_model::kind::subresource("scale")];
    let mut object = json!({"metadata": {"name": "a"}, "spec": {}, "status": {"count": 2, "selector": "a=b"}});
    crate::scale::write(&kind, &mut object, &json!({"spec": {"replicas": 4}}));
    let scale = crate::scale::read(&kind, &object).expect("a scale");
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]), (&json!(4), &json!({"replicas": 2, "selector": "a=b"})));
    assert!(create_problems(&kind, "spec: {deep: {count: -1}}").contains("should be a non-negative integer"));
}

#[test]
fn stored_objects_read_as_the_schema_says_by_now() {
    let kind = widgets(SCHEMA);
    let mut object = json!({"metadata": {"name": "a"}, "spec": {"gone": 1}});
    super::read_stored(&kind, &mut object);
    assert_eq!(object["spec"], json!({"size": 3}));
    assert_eq!(read(&kind, "spec: {}")["spec"], json!({"size": 3}));
}
