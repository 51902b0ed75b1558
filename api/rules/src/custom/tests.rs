//! Custom objects and their schemas.

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
fn rejects_values_in_upstreams_words() {
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
    let warnings = check_fields(&kind, &mut object, &[api_model::decode::Duplicate::Path("spec.size".to_owned())], FieldValidation::Warn)
        .expect("types fit");
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
    let problems =
        |new: Value| -> Vec<String> { validate_update(&kind, None, &new, &old, &mut Vec::new()).iter().map(ToString::to_string).collect() };
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

const RULED: &str = r#"
type: object
properties:
  spec:
    type: object
    x-kubernetes-validations:
    - {rule: self.min <= self.max, message: min is above max}
    - {rule: '!has(self.name) || self.name.size() < 5', fieldPath: .name, reason: FieldValueForbidden}
    - {rule: self.max >= oldSelf.max, messageExpression: "'max was ' + string(oldSelf.max)"}
    - {rule: '!oldSelf.hasValue() || self.max < 9', optionalOldSelf: true}
    properties:
      min: {type: integer}
      max: {type: integer}
      name: {type: string}
      parts:
        type: array
        maxItems: 10
        items:
          type: object
          x-kubernetes-validations: [{rule: self.count < 3}]
          properties: {count: {type: integer}}
      secret: {type: string, x-kubernetes-validations: [{rule: self == oldSelf, message: it is immutable}]}
"#;

#[test]
fn reports_rules_that_do_not_hold() {
    let kind = widgets(RULED);
    let cases = [
        "spec: {min: 1, max: 2}",
        "spec: {min: 3, max: 2, name: abcdef}",
        "spec: {min: 1}",
        "spec: {min: x, max: 2}",
        "spec: {min: 1, max: 2, parts: [{count: 1}, {count: 3}]}",
    ];
    insta::assert_snapshot!(table(&cases, |case| create_problems(&kind, case)));
    let changes = ["spec: {min: 1, max: 4}", "spec: {min: 1, max: 5, secret: b}", "spec: {min: 1, max: 9, secret: a}"];
    let old = "spec: {min: 1, max: 5, secret: a}";
    insta::assert_snapshot!(table(&changes, |case| crate::testing::update_problems(&kind, None, old, case)));
}

/// Elements of a list without keys have no identity. A failed rule in one is no error as long as the whole list is
/// unchanged.
#[test]
fn what_stands_in_an_unchanged_list_may_stay() {
    let kind = widgets(RULED);
    let old = "spec: {min: 1, max: 5, parts: [{count: 3}]}";
    let problems = |new: &str| crate::testing::update_problems(&kind, None, old, new);
    let none = problems("spec: {min: 1, max: 6}");
    assert_eq!(problems("spec: {min: 1, max: 6, parts: [{count: 3}]}"), none);
    assert!(problems("spec: {min: 1, max: 6, parts: [{count: 3}, {count: 1}]}").contains("failed rule: self.count < 3"));
}

const STRICTER: &str = r"
type: object
properties:
  spec:
    type: object
    properties:
      size:
        type: integer
        x-kubernetes-validations: [{rule: self < 5, message: too large}, {rule: self == oldSelf || self > 100, message: it stays}]
      whole:
        type: object
        x-kubernetes-map-type: atomic
        properties: {a: {type: integer, x-kubernetes-validations: [{rule: self < 5}]}, b: {type: integer}}
      parts:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [name]
        x-kubernetes-validations: [{rule: 'self.all(part, part.count < 5)'}]
        items: {type: object, properties: {name: {type: string}, count: {type: integer}}}
      loose:
        type: object
        x-kubernetes-preserve-unknown-fields: true
        x-kubernetes-validations: [{rule: has(self.a)}]
        properties: {a: {type: integer}}
      port: {x-kubernetes-int-or-string: true, x-kubernetes-validations: [{rule: self < 5}]}
";

#[test]
fn rules_warn_of_what_an_update_leaves_as_it_was() {
    let kind = widgets(STRICTER);
    let object = |spec: &Value| json!({"metadata": {"name": "a", "namespace": "default", "resourceVersion": "1"}, "spec": spec});
    let outcome = |old: Value, new: Value| {
        let mut warnings = Vec::new();
        let errors = validate_update(&kind, None, &object(&new), &object(&old), &mut warnings);
        (errors.iter().map(ToString::to_string).collect::<Vec<_>>(), warnings)
    };
    let warned = |warning: &str| (Vec::new(), vec![warning.to_owned()]);
    let refused = |error: &str| (vec![error.to_owned()], Vec::new());
    assert_eq!(outcome(json!({"size": 9}), json!({"size": 9, "whole": {}})), warned("spec.size: Invalid value: 9: too large"));
    let (errors, warnings) = outcome(json!({"size": 9}), json!({"size": 8}));
    assert_eq!(errors, ["spec.size: Invalid value: 8: too large", "spec.size: Invalid value: 8: it stays"]);
    assert_eq!(warnings, Vec::<String>::new());
    // Fields of an atomic map are correlated with their old values too.
    let whole = |b: u32| json!({"whole": {"a": 9, "b": b}});
    assert_eq!(outcome(whole(1), whole(2)), warned("spec.whole.a: Invalid value: 9: failed rule: self < 5"));
    // Elements with keys may change their order.
    let parts = |names: [&str; 2]| json!({"parts": names.map(|name| json!({"name": name, "count": 9}))});
    let rule = "failed rule: self.all(part, part.count < 5)";
    assert_eq!(outcome(parts(["a", "b"]), parts(["b", "a"])), warned(&format!("spec.parts: Invalid value: {rule}")));
    assert_eq!(outcome(parts(["a", "b"]), parts(["a", "c"])), refused(&format!("spec.parts: Invalid value: {rule}")));
    // Fields without a schema are not compared, so their value counts as changed.
    let loose = json!({"loose": {"unknown": 1}});
    assert_eq!(outcome(loose.clone(), loose), refused("spec.loose: Invalid value: failed rule: has(self.a)"));
    assert_eq!(outcome(json!({"loose": {}}), json!({"loose": {}})), warned("spec.loose: Invalid value: failed rule: has(self.a)"));
    // A rule without a result is an error even when the value is unchanged.
    let (errors, _) = outcome(json!({"port": "x"}), json!({"port": "x"}));
    assert!(errors.len() == 1 && errors[0].contains("no such overload"), "{errors:?}");
}

#[test]
fn rules_that_would_run_for_long_do_not_run() {
    let kind = widgets(
        "{type: object, x-kubernetes-validations: [{rule: 'self.a.all(x, self.a.all(y, self.a.all(z, x + y + z > 0)))'}], properties: {a: {type: array, items: {type: integer}}}}",
    );
    let object = |len: usize| json!({"metadata": {"name": "a", "namespace": "default"}, "a": vec![1; len]});
    let problems = |len: usize| crate::validate_create(&kind, &object(len)).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(problems(5), Vec::<String>::new());
    assert_eq!(
        problems(2_000),
        [
            "<nil>: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due \
             to call cost exceeds limit for rule: self.a.all(x, self.a.all(y, self.a.all(z, x + y + z > 0)))"
        ]
    );
}

#[test]
fn all_rules_of_an_object_share_a_budget() {
    let kind = widgets(
        "{type: object, properties: {l: {type: array, items: {type: array, items: {type: integer}, x-kubernetes-validations: [{rule: 'self.all(x, self.all(y, x + y > 0))'}]}}}}",
    );
    let object = |len: usize| json!({"metadata": {"name": "a", "namespace": "default"}, "l": vec![vec![1; 300]; len]});
    let problems = |len: usize| crate::validate_create(&kind, &object(len)).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(problems(3), Vec::<String>::new());
    let problems = problems(100);
    assert_eq!(problems.len(), 1, "{problems:?}");
    let wanted = "Invalid value: \"array\": validation failed due to running out of cost budget, no further validation rules will be run";
    assert!(problems[0].starts_with("l[1") && problems[0].ends_with(wanted), "{problems:?}");
}
