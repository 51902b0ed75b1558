use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;

/// The text of one object.
pub(crate) fn text(group: &str, resource: &str, object: &Value) -> String {
    let mut metrics = StateMetrics::new();
    metrics.add(group, resource, object.to_string().as_bytes()).expect("an object");
    String::from_utf8(metrics.into_text()).expect("text")
}

/// The samples of one object, without the lines of their families.
pub(crate) fn samples(group: &str, resource: &str, object: &Value) -> String {
    let text = text(group, resource, object);
    text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
}

fn heads() -> impl Iterator<Item = &'static Head> {
    TABLES.iter().flat_map(|table| (table.heads)())
}

#[test]
fn each_family_has_one_name_and_one_line_of_help() {
    let mut names = BTreeSet::new();
    for head in heads() {
        assert!(head.name.starts_with("kube_"), "{}", head.name);
        assert!(names.insert(head.name), "{} twice", head.name);
        assert!(!head.help.is_empty() && !head.help.contains(['\n', '\\']), "{}", head.name);
        assert_eq!(head.metric_type == "counter", head.name.ends_with("_total"), "{}", head.name);
    }
}

#[test]
fn the_names_of_all_families_are_those_of_kube_state_metrics() {
    let names: Vec<&str> = heads().map(|head| head.name).collect();
    insta::assert_snapshot!(names.join("\n"));
}

#[test]
fn each_resource_is_a_served_kind_and_is_listed_once() {
    let mut listed = BTreeSet::new();
    for (group, resource) in resources() {
        assert!(listed.insert((group, resource)), "{resource} twice");
        assert!(api_model::kind::find(group, resource).is_some(), "{resource} of {group:?}");
    }
}

#[test]
fn every_kind_reads_an_object_that_has_only_a_name() {
    for (group, resource) in resources() {
        let samples = samples(group, resource, &json!({"metadata": {"name": "x"}}));
        assert!(samples.lines().all(|line| line.contains("\"x\"")), "{samples}");
    }
}

#[test]
fn label_values_are_escaped() {
    let object = json!({"metadata": {"name": "a\\b\"c\nd", "namespace": "é"}});
    assert_eq!(samples("", "configmaps", &object), "kube_configmap_info{namespace=\"é\",configmap=\"a\\\\b\\\"c\\nd\"} 1\n");
}

#[test]
fn damaged_objects_add_nothing() {
    let mut metrics = StateMetrics::new();
    for object in [
        r#"{"metadata": {"name": "x", "creationTimestamp": "2024-01-02T10:30:00Z"}, "status": {"phase": 1}}"#,
        r#"{"metadata": {"name": "x"}, "status": {"phase": "Running"}"#,
        r#"{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "x"}}"#,
        "[]",
        "",
    ] {
        let error = metrics.add("", "pods", object.as_bytes()).expect_err("damaged");
        assert!(matches!(error, StateMetricsError::Decode { resource: "pods", .. }), "{error}");
    }
    let error = metrics.add("", "pods", b"{}").expect_err("without a name");
    assert_eq!(error.to_string(), "an object of the resource \"pods\" has no name");
    let error = metrics.add("", "deployments", b"{}").expect_err("of another group");
    assert_eq!(error.to_string(), "the resource \"deployments\" of the group \"\" has no families of metrics");
    assert!(metrics.into_text().is_empty());
}

#[test]
fn quantities_that_cannot_be_read_are_left_out() {
    let quota = json!({"metadata": {"name": "x", "namespace": "n"}, "status": {"hard": {"cpu": "1500m", "memory": "plenty"}}});
    assert_eq!(
        samples("", "resourcequotas", &quota),
        "kube_resourcequota{namespace=\"n\",resourcequota=\"x\",resource=\"cpu\",type=\"hard\"} 1.5\n"
    );
}

#[test]
fn samples_of_several_objects_are_under_one_head() {
    let mut metrics = StateMetrics::default();
    for (group, resource, name) in [("", "secrets", "a"), ("batch", "jobs", "j"), ("", "secrets", "b")] {
        let object = json!({"metadata": {"name": name, "namespace": "n"}, "data": {"password": "aGlkZGVu"}, "type": "Opaque"});
        metrics.add(group, resource, object.to_string().as_bytes()).expect("an object");
    }
    let text = String::from_utf8(metrics.into_text()).expect("text");
    assert!(!text.contains("hidden") && !text.contains("aGlkZGVu") && !text.contains("password"), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn configurations_of_webhooks_and_requests_of_certificates_have_families() {
    let webhooks = json!([
        {"name": "a.example.com", "clientConfig": {"service": {"name": "s", "namespace": "n"}}},
        {"name": "b.example.com", "clientConfig": {"url": "https://b"}},
    ]);
    let configuration = json!({"metadata": {"name": "w", "resourceVersion": "1234567"}, "webhooks": webhooks});
    let request = json!({
        "metadata": {"name": "r"},
        "spec": {"signerName": "kubernetes.io/kube-apiserver-client"},
        "status": {"conditions": [{"type": "Approved", "status": "True"}], "certificate": "YWJj"},
    });
    let account = json!({
        "metadata": {"name": "a", "namespace": "n", "uid": "u"},
        "automountServiceAccountToken": false,
        "secrets": [{"name": "s"}],
        "imagePullSecrets": [{"name": "p"}],
    });
    insta::assert_snapshot!(
        [
            samples("admissionregistration.k8s.io", "mutatingwebhookconfigurations", &configuration),
            samples("admissionregistration.k8s.io", "validatingwebhookconfigurations", &configuration),
            samples("certificates.k8s.io", "certificatesigningrequests", &request),
            samples("", "serviceaccounts", &account),
        ]
        .concat()
    );
}
