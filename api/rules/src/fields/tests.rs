//! Unknown fields, wrong types, and canonical forms.

use api_model::decode::decode;
use serde_json::json;

use super::*;

fn kind(group: &str, plural: &str) -> &'static Kind {
    api_model::kind::find(group, plural).expect("served")
}

fn deployment() -> &'static Kind {
    kind("apps", "deployments")
}

#[test]
fn unknown_fields_go_whatever_the_mode() {
    let body = json!({"apiVersion": "apps/v1", "spec": {"replicas": 1, "foo": 1, "template": {"spec": {"containers": [{"name": "a", "imagee": "x"}]}}}, "bar": {}});
    let unknown = ["unknown field \"bar\"", "unknown field \"spec.foo\"", "unknown field \"spec.template.spec.containers[0].imagee\""];
    for (mode, warnings) in [(FieldValidation::Ignore, &[][..]), (FieldValidation::Warn, &unknown[..])] {
        let mut object = body.clone();
        assert_eq!(check_fields(deployment(), &mut object, &[], mode), Ok(warnings.iter().map(|w| (*w).to_owned()).collect()));
        assert_eq!(
            object,
            json!({"apiVersion": "apps/v1", "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "a"}]}}}})
        );
    }
    let error = check_fields(
        deployment(),
        &mut body.clone(),
        &[api_model::decode::Duplicate::Path("spec.replicas".to_owned())],
        FieldValidation::Strict,
    )
    .expect_err("strict");
    insta::assert_snapshot!(error.to_string());
}

#[test]
fn reports_wrong_types_in_gos_words() {
    let outcome = |kind: &Kind, yaml: &str| {
        let mut value = decode(yaml.as_bytes(), true).expect("yaml").value;
        match check_fields(kind, &mut value, &[], FieldValidation::Warn) {
            Ok(_) => format!("fine: {value}"),
            Err(error) => error.to_string(),
        }
    };
    let (pod, service, secret) = (kind("", "pods"), kind("", "services"), kind("", "secrets"));
    let lines = [
        outcome(deployment(), "spec: {replicas: three}"),
        outcome(deployment(), "spec: {replicas: 1.5}"),
        outcome(deployment(), "spec: {replicas: 3000000000}"),
        outcome(deployment(), "spec: {paused: 1}"),
        outcome(deployment(), "spec: []"),
        outcome(deployment(), "[]"),
        outcome(deployment(), "metadata: {labels: {a: 1}}"),
        outcome(deployment(), "metadata: {labels: [a]}"),
        outcome(deployment(), "spec: {template: {spec: {containers: [{env: [{name: A, value: 1}]}]}}}"),
        outcome(deployment(), "spec: {template: {spec: {containers: {name: a}}}}"),
        outcome(deployment(), "spec: {strategy: {rollingUpdate: {maxSurge: true}}}"),
        outcome(pod, "spec: {containers: [{args: [1]}]}"),
        outcome(pod, "spec: {terminationGracePeriodSeconds: 18446744073709551615}"),
        outcome(pod, "spec: {containers: [{resources: {limits: {cpu: lots}}}]}"),
        outcome(pod, "spec: {containers: [{resources: {limits: {memory: 1mb}}}]}"),
        outcome(pod, "spec: {containers: [{resources: {limits: {cpu: 2}}}]}"),
        outcome(pod, "metadata: {creationTimestamp: yesterday}"),
        outcome(pod, "metadata: {creationTimestamp: 2024-01-02T03:04:05.678+01:00}"),
        outcome(service, "spec: {ports: [{targetPort: 80}, {targetPort: http}]}"),
        outcome(service, "spec: {ports: [{targetPort: 1.5}]}"),
        outcome(secret, "data: {a: '!!'}"),
        outcome(secret, "data: {a: 5}"),
        outcome(secret, "data: {a: aGk=}"),
        outcome(secret, "data: {a: aGk}"),
        outcome(secret, "data: {a: YR==, b: \"Y\\nQ=\\r\\n=\"}"),
        outcome(kind("", "nodes"), "spec: {taints: [{timeAdded: '9999-12-31T23:59:59Z'}, {timeAdded: '0001-01-01T00:00:00Z'}]}"),
        outcome(kind("coordination.k8s.io", "leases"), "spec: {renewTime: '2024-01-02T03:04:05Z'}"),
    ];
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn nulls_are_absent_fields_and_zero_elements() {
    let mut object = json!({"metadata": {"labels": {"a": null}, "creationTimestamp": null}, "spec": {"containers": null, "nodeName": null}, "status": null});
    check_fields(kind("", "pods"), &mut object, &[], FieldValidation::Strict).expect("fine");
    assert_eq!(object, json!({"metadata": {"labels": {"a": ""}}, "spec": {}}));
    let mut object = json!({"spec": {"containers": [null], "hostAliases": [{"hostnames": [null]}]}});
    check_fields(kind("", "pods"), &mut object, &[], FieldValidation::Strict).expect("fine");
    assert_eq!(object, json!({"spec": {"containers": [{}], "hostAliases": [{"hostnames": [""]}]}}));
}

#[test]
fn quantities_are_stored_in_canonical_writing_and_rounded_in_resource_lists() {
    let mut object = json!({"spec": {
        "containers": [{"resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}, "requests": {"cpu": "100u"}}}],
        "volumes": [{"emptyDir": {"sizeLimit": " 1024Mi"}}, {"emptyDir": {"sizeLimit": 1e3}}, {"emptyDir": {"sizeLimit": "1.5m"}}],
    }});
    check_fields(kind("", "pods"), &mut object, &[], FieldValidation::Strict).expect("fine");
    assert_eq!(
        object,
        json!({"spec": {
            "containers": [{"resources": {"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "1m"}}}],
            "volumes": [{"emptyDir": {"sizeLimit": "1Gi"}}, {"emptyDir": {"sizeLimit": "1k"}}, {"emptyDir": {"sizeLimit": "1500u"}}],
        }})
    );
}

#[test]
fn bodies_of_subresources_have_schemas_too() {
    let mut scale = json!({"spec": {"replicas": "2"}});
    let error = check_body("autoscaling", "v1", "Scale", &mut scale, &[], FieldValidation::Warn).expect_err("a string");
    assert_eq!(error.to_string(), "json: cannot unmarshal string into Go struct field ScaleSpec.spec.replicas of type int32");
}

#[test]
fn custom_resources_are_free_but_for_their_metadata() {
    let check = |mut object: Value| {
        let result = check_body("example.com", "v1", "Widget", &mut object, &[], FieldValidation::Warn);
        (result, object)
    };
    let (result, object) = check(json!({"metadata": {"name": "a", "nmae": "b"}, "spec": {"anything": [1, {"x": null}]}}));
    assert_eq!(result, Ok(vec!["unknown field \"metadata.nmae\"".to_owned()]));
    assert_eq!(object, json!({"metadata": {"name": "a"}, "spec": {"anything": [1, {"x": null}]}}));
    assert!(check(json!({"metadata": {"name": 1}})).0.is_err());
    assert!(check(json!([])).0.is_err());
}

#[test]
fn the_query_parameter_is_upstreams() {
    for (text, wanted) in [
        ("", Some(FieldValidation::Warn)),
        ("Strict", Some(FieldValidation::Strict)),
        ("Ignore", Some(FieldValidation::Ignore)),
        ("strict", None),
    ] {
        assert_eq!(FieldValidation::parse(text), wanted, "{text}");
    }
}
