use serde_json::json;

use crate::tests::row;

#[test]
fn configuration_is_counted() {
    assert_eq!(row("", "Namespace", json!({"status": {"phase": "Active"}})), "x | Active | 90m");
    assert_eq!(row("", "ConfigMap", json!({"data": {"a": "1", "b": "2"}, "binaryData": {"c": ""}})), "x | 3 | 90m");
    assert_eq!(row("", "Secret", json!({"type": "Opaque", "data": {"a": ""}})), "x | Opaque | 1 | 90m");
    assert_eq!(row("", "ServiceAccount", json!({"secrets": [{}]})), "x | 1 | 90m");
    assert_eq!(row("", "LimitRange", json!({})), "x | 2024-01-02T10:30:00Z");
}

#[test]
fn quotas_part_requests_from_limits() {
    let status = json!({
        "hard": {"pods": "10", "limits.cpu": "4", "requests.cpu": "2", "limits.memory": "1Gi"},
        "used": {"pods": "3", "limits.cpu": "1"},
    });
    assert_eq!(
        row("", "ResourceQuota", json!({"status": status})),
        "x | pods: 3/10, requests.cpu: 0/2 | limits.cpu: 1/4, limits.memory: 0/1Gi | 90m"
    );
}

#[test]
fn components_are_healthy_or_not() {
    let component = |status: &str| {
        row("", "ComponentStatus", json!({"conditions": [{"type": "Healthy", "status": status, "message": "ok", "error": "e"}]}))
    };
    assert_eq!(component("True"), "x | Healthy | ok | e");
    assert_eq!(component("False"), "x | Unhealthy | ok | e");
    assert_eq!(row("", "ComponentStatus", json!({})), "x | Unknown |  | ");
}
