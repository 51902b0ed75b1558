use serde_json::{Value, json};

use crate::tests::row;

const ADMISSION: &str = "admissionregistration.k8s.io";

#[test]
fn admission_is_counted_and_bound() {
    let two = json!({"webhooks": [{}, {}]});
    assert_eq!(row(ADMISSION, "MutatingWebhookConfiguration", two.clone()), "x | 2 | 90m");
    assert_eq!(row(ADMISSION, "ValidatingWebhookConfiguration", two), "x | 2 | 90m");
    let policy = json!({"spec": {"validations": [{}], "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}});
    assert_eq!(row(ADMISSION, "ValidatingAdmissionPolicy", policy), "x | 1 | v1/ConfigMap | 90m");
    assert_eq!(row(ADMISSION, "MutatingAdmissionPolicy", json!({"spec": {"mutations": [{}, {}]}})), "x | 2 | <unset> | 90m");
    let binding = |parameters: Value| {
        row(ADMISSION, "ValidatingAdmissionPolicyBinding", json!({"spec": {"policyName": "p", "paramRef": parameters}}))
    };
    assert_eq!(binding(json!({"name": "c", "namespace": "n"})), "x | p | n/c | 90m");
    assert_eq!(binding(json!({"name": "c"})), "x | p | */c | 90m");
    assert_eq!(binding(json!({"selector": {"matchLabels": {"a": "b"}}})), "x | p | a=b | 90m");
    assert_eq!(row(ADMISSION, "MutatingAdmissionPolicyBinding", json!({})), "x |  | <unset> | 90m");
}

#[test]
fn flow_control() {
    let group = "flowcontrol.apiserver.k8s.io";
    let schema = json!({
        "spec": {"priorityLevelConfiguration": {"name": "system"}, "matchingPrecedence": 100, "distinguisherMethod": {"type": "ByUser"}},
        "status": {"conditions": [{"type": "Dangling", "status": "False"}]},
    });
    assert_eq!(row(group, "FlowSchema", schema), "x | system | 100 | ByUser | 90m | False");
    let level = json!({"spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 30, "limitResponse": {"queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 50}}}}});
    assert_eq!(row(group, "PriorityLevelConfiguration", level), "x | Limited | 30 | 64 | 6 | 50 | 90m");
    let exempt = json!({"spec": {"type": "Exempt"}});
    assert_eq!(row(group, "PriorityLevelConfiguration", exempt), "x | Exempt | <none> | <none> | <none> | <none> | 90m");
}

#[test]
fn apis_tell_who_answers() {
    assert_eq!(row("apiextensions.k8s.io", "CustomResourceDefinition", json!({})), "x | 2024-01-02T10:30:00Z");
    let service = |status: &str| {
        let condition = json!([{"type": "Available", "status": status, "reason": "MissingEndpoints"}]);
        let object = json!({"spec": {"service": {"namespace": "n", "name": "s"}}, "status": {"conditions": condition}});
        row("apiregistration.k8s.io", "APIService", object)
    };
    assert_eq!(service("True"), "x | n/s | True | 90m");
    assert_eq!(service("False"), "x | n/s | False (MissingEndpoints) | 90m");
    assert_eq!(row("apiregistration.k8s.io", "APIService", json!({})), "x | Local | Unknown | 90m");
}

#[test]
fn devices_and_migrations() {
    let group = "resource.k8s.io";
    assert_eq!(row(group, "ResourceClaim", json!({})), "x | pending | 90m");
    let used = json!({"status": {"allocation": {}, "reservedFor": [{}]}});
    assert_eq!(row(group, "ResourceClaim", used.clone()), "x | allocated,reserved | 90m");
    let mut deleted = used;
    deleted["metadata"] = json!({"deletionTimestamp": "2024-01-02T11:00:00Z"});
    assert_eq!(row(group, "ResourceClaim", deleted), "x | deleted,allocated,reserved | 90m");
    let slice = json!({"spec": {"nodeName": "n1", "driver": "gpu.example.com", "pool": {"name": "p"}}});
    assert_eq!(row(group, "ResourceSlice", slice), "x | n1 | gpu.example.com | p | 90m");
    let migration = json!({"spec": {"resource": {"group": "apps", "resource": "deployments"}}});
    assert_eq!(row("storagemigration.k8s.io", "StorageVersionMigration", migration), "x | deployments.apps");
}
