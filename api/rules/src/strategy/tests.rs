//! Fields that only the server writes, for built-in kinds and for custom resources.

use crate::testing::{kind, new, read};
use crate::{prepare_create, prepare_update};
use api_model::kind::{Kind, Subresource};
use serde_json::{Value, json};

fn custom(with_status: bool) -> Kind {
    let status = Subresource { name: "status".to_owned(), kind: None, verbs: Vec::new() };
    Kind {
        group: "example.com".to_owned(),
        plural: "widgets".to_owned(),
        kind: "Widget".to_owned(),
        subresources: if with_status { vec![status] } else { Vec::new() },
        custom: Some(std::sync::Arc::new(api_model::kind::Custom::default())),
        ..kind("", "configmaps").clone()
    }
}

#[test]
fn users_do_not_set_what_is_the_servers() {
    let deployments = kind("apps", "deployments");
    let mut object = json!({"metadata": {"generation": 9, "deletionTimestamp": "x", "selfLink": "y"}, "status": {"replicas": 5}});
    prepare_create(deployments, &mut object);
    assert_eq!(object, json!({"metadata": {"generation": 1}, "status": {}}));
}

#[test]
fn generations_count_changes_of_the_desired_state() {
    let template = "spec: {replicas: 1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}";
    let (deployments, sets) = (kind("apps", "deployments"), kind("apps", "replicasets"));
    let generation = |kind: &Kind, sub: Option<&str>, change: &dyn Fn(&mut Value)| {
        let old = new(kind, template);
        let mut changed = old.clone();
        change(&mut changed);
        prepare_update(kind, sub, &mut changed, &old);
        changed.pointer("/metadata/generation").and_then(Value::as_i64)
    };
    let scale = |object: &mut Value| object["spec"]["replicas"] = json!(2);
    let label = |object: &mut Value| object["metadata"]["labels"] = json!({"a": "b"});
    let annotate = |object: &mut Value| object["metadata"]["annotations"] = json!({"a": "b"});
    let zero = |object: &mut Value| object["spec"]["paused"] = json!(false);
    let lie = |object: &mut Value| object["metadata"]["generation"] = json!(99);
    for (kind, sub, change, wanted) in [
        (deployments, None, &scale as &dyn Fn(&mut Value), 2),
        (deployments, Some("scale"), &scale, 2),
        (deployments, Some("status"), &scale, 1),
        (deployments, None, &label, 1),
        (deployments, None, &annotate, 2),
        (deployments, None, &zero, 1),
        (deployments, None, &lie, 1),
        (sets, None, &annotate, 1),
        (sets, None, &scale, 2),
    ] {
        assert_eq!(generation(kind, sub, change), Some(wanted), "{} {sub:?}", kind.kind);
    }
}

#[test]
fn custom_resources_keep_status_and_spec_apart_where_they_have_a_status() {
    let old = json!({"metadata": {"name": "a", "generation": 3, "resourceVersion": "1"}, "spec": {"x": 1}, "status": {"y": 1}});
    let changed = json!({"metadata": {"name": "a", "labels": {"l": "m"}, "resourceVersion": "1"}, "spec": {"x": 2}, "status": {"y": 2}});
    let update = |kind: &Kind, sub: Option<&str>| {
        let mut changed = changed.clone();
        prepare_update(kind, sub, &mut changed, &old);
        changed
    };
    let main = update(&custom(true), None);
    assert_eq!((&main["spec"], &main["status"], &main["metadata"]["generation"]), (&json!({"x": 2}), &json!({"y": 1}), &json!(4)));
    let status = update(&custom(true), Some("status"));
    assert_eq!((&status["spec"], &status["status"], &status["metadata"]), (&json!({"x": 1}), &json!({"y": 2}), &old["metadata"]));
    let whole = update(&custom(false), None);
    assert_eq!((&whole["spec"], &whole["status"]), (&json!({"x": 2}), &json!({"y": 2})));
    let mut fresh = changed.clone();
    prepare_create(&custom(true), &mut fresh);
    assert_eq!((fresh.get("status"), &fresh["metadata"]["generation"]), (None, &json!(1)));
}

#[test]
fn what_is_empty_counts_as_a_change_of_a_custom_resource() {
    let generation = |old: Value, new: Value| {
        let old = json!({"metadata": {"name": "a", "generation": 3}, "spec": old});
        let mut new = json!({"metadata": {"name": "a"}, "spec": new});
        prepare_update(&custom(true), None, &mut new, &old);
        new["metadata"]["generation"].as_i64()
    };
    for empty in [json!(false), json!(0), json!(""), json!({}), json!([]), Value::Null] {
        assert_eq!(generation(json!({}), json!({"x": empty})), Some(4), "{empty} appears");
        assert_eq!(generation(json!({"x": empty}), json!({})), Some(4), "{empty} goes");
        assert_eq!(generation(json!({"x": empty}), json!({"x": empty})), Some(3), "{empty} stays");
    }
}

#[test]
fn a_status_without_a_door_of_its_own_is_a_field_like_others() {
    let old = json!({"metadata": {"name": "a", "generation": 3}, "status": {"x": 1}});
    let mut new = json!({"metadata": {"name": "a"}, "status": {"x": 2}});
    prepare_update(&custom(false), None, &mut new, &old);
    assert_eq!(new["metadata"]["generation"], 4);
}

#[test]
fn a_node_registers_with_its_status_and_updates_it_apart() {
    let nodes = kind("", "nodes");
    let old = new(nodes, "status: {capacity: {cpu: 4}}");
    assert_eq!(old.pointer("/status/allocatable"), Some(&json!({"cpu": "4"})));
    let mut changed = read(nodes, "spec: {unschedulable: true}");
    prepare_update(nodes, None, &mut changed, &old);
    assert_eq!(changed.get("status"), old.get("status"));
}

#[test]
fn a_namespaces_finalizers_change_through_finalize_alone() {
    let namespaces = kind("", "namespaces");
    let old = new(namespaces, "metadata: {name: team}");
    let mut changed = old.clone();
    changed["spec"] = json!({"finalizers": []});
    for (sub, wanted) in [(None, json!(["kubernetes"])), (Some("status"), json!(["kubernetes"])), (Some("finalize"), json!([]))] {
        let mut changed = changed.clone();
        prepare_update(namespaces, sub, &mut changed, &old);
        assert_eq!(changed.pointer("/spec/finalizers"), Some(&wanted), "{sub:?}");
    }
}

#[test]
fn approval_and_status_of_a_request_keep_out_of_each_others_way() {
    let requests = kind("certificates.k8s.io", "certificatesigningrequests");
    let old =
        json!({"metadata": {"name": "a"}, "spec": {"request": "x"}, "status": {"conditions": [{"type": "Approved", "status": "True"}]}});
    let changed = json!({"metadata": {"name": "a"}, "spec": {"request": "y"}, "status": {"certificate": "z", "conditions": [{"type": "Denied", "status": "True"}]}});
    let update = |sub: Option<&str>| {
        let mut changed = changed.clone();
        prepare_update(requests, sub, &mut changed, &old);
        assert_eq!(changed.pointer("/spec/request"), Some(&json!("x")));
        changed["status"].clone()
    };
    assert_eq!(update(None), old["status"]);
    assert_eq!(update(Some("approval")), json!({"conditions": [{"type": "Denied", "status": "True"}]}));
    assert_eq!(update(Some("status")), json!({"certificate": "z", "conditions": [{"type": "Approved", "status": "True"}]}));
}
