//! Metadata of every kind: names, sizes, owners, immutable fields.

use crate::testing::{create_problems, kind, new, table, update_problems};
use serde_json::{Value, json};

#[test]
fn metadata_is_checked() {
    let cases = [
        "metadata: {name: A_b}",
        "metadata: {name: a.b-c}",
        "metadata: {generateName: A_}",
        "metadata: {generateName: web-, name: web-x}",
        "metadata: {namespace: A}",
        "metadata: {labels: {'a b': c, example.com/x: 'y z', /x: y, a/b/c: d}}",
        "metadata: {annotations: {'a b': c, UPPER: fine}}",
        "metadata: {finalizers: [odd, example.com/x, 'a b']}",
        "metadata: {finalizers: [orphan, foregroundDeletion]}",
        "metadata: {ownerReferences: [{apiVersion: '', kind: '', name: '', uid: ''}]}",
        "metadata: {ownerReferences: [{apiVersion: v1, kind: Event, name: a, uid: b}]}",
        "metadata: {ownerReferences: [{apiVersion: v1, kind: A, name: a, uid: b, controller: true}, {apiVersion: v1, kind: B, name: b, uid: c, controller: true}]}",
    ];
    insta::assert_snapshot!(table(&cases, |case| create_problems(kind("", "configmaps"), case)));
}

#[test]
fn rejects_long_names_and_annotations() {
    let maps = kind("", "configmaps");
    let name = format!("metadata: {{name: {}}}", "a".repeat(254));
    assert!(create_problems(maps, &name).ends_with(": must be no more than 253 bytes"));
    let annotations = format!("metadata: {{annotations: {{a: {}}}}}", "x".repeat(256 * 1024));
    assert_eq!(create_problems(maps, &annotations), "metadata.annotations: Too long: may not be more than 262144 bytes");
}

#[test]
fn identity_does_not_change() {
    let maps = kind("", "configmaps");
    let cases = [
        "metadata: {labels: {a: b}}",
        "metadata: {name: other}",
        "metadata: {uid: other}",
        "metadata: {creationTimestamp: 2020-01-01T00:00:00Z}",
        "metadata: {deletionTimestamp: 2020-01-01T00:00:00Z}",
        "metadata: {generation: 7}",
    ];
    insta::assert_snapshot!(table(&cases, |case| update_problems(
        maps,
        None,
        "metadata: {name: a, creationTimestamp: 2019-01-01T00:00:00Z}",
        case
    )));
}

#[test]
fn what_is_being_deleted_gets_no_new_finalizers() {
    let maps = kind("", "configmaps");
    let mut old = new(maps, "metadata: {finalizers: [example.com/a, example.com/b]}");
    api_model::meta::set(&mut old, "deletionTimestamp", "2020-01-01T00:00:00Z");
    let change = |finalizers: Value| {
        let mut changed = old.clone();
        api_model::meta::set(&mut changed, "finalizers", finalizers);
        api_model::meta::unset(&mut changed, "deletionTimestamp");
        crate::prepare_update(maps, None, &mut changed, &old);
        api_model::field::aggregate(&crate::validate_update(maps, None, &changed, &old, &mut Vec::new()))
    };
    assert_eq!(change(json!(["example.com/a"])), "[]");
    assert_eq!(
        change(json!(["example.com/a", "example.com/c"])),
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.com/c\"}"
    );
}

#[test]
fn some_kinds_want_the_revision_that_was_read() {
    let problem = |group: &str, plural: &str, yaml: &str| {
        let kind = kind(group, plural);
        let old = new(kind, yaml);
        let mut changed = old.clone();
        crate::prepare_update(kind, None, &mut changed, &old);
        api_model::field::aggregate(&crate::validate_update(kind, None, &changed, &old, &mut Vec::new()))
    };
    assert_eq!(problem("", "configmaps", ""), "[]");
    assert_eq!(
        problem("coordination.k8s.io", "leases", ""),
        "metadata.resourceVersion: Invalid value: \"\": must be specified for an update"
    );
}

#[test]
fn names_of_each_kind_have_their_own_rules() {
    for (group, plural, name, good) in [
        ("", "pods", "a.b", true),
        ("", "services", "a.b", false),
        ("", "services", "1a", false),
        ("", "namespaces", "a.b", false),
        ("rbac.authorization.k8s.io", "clusterroles", "system:node", true),
        ("rbac.authorization.k8s.io", "clusterroles", "a%b", false),
        ("certificates.k8s.io", "certificatesigningrequests", "Node_CSR:x", true),
        ("coordination.k8s.io", "leases", "Upper", false),
        ("", "events", "x.17a", true),
    ] {
        assert_eq!(super::name_problems(kind(group, plural), name, false).is_empty(), good, "{plural} {name}");
    }
}

#[test]
fn custom_resources_may_have_finalizers_without_a_domain() {
    let mut custom = kind("", "configmaps").clone();
    (custom.group, custom.plural) = ("example.com".to_owned(), "widgets".to_owned());
    custom.custom = Some(std::sync::Arc::default());
    let object = json!({"metadata": {"name": "a", "namespace": "default", "finalizers": ["odd"]}});
    assert_eq!(crate::validate_create(&custom, &object), []);
    assert_eq!(crate::validate_create(kind("", "configmaps"), &object).len(), 1);
}
