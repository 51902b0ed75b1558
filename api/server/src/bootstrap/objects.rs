//! Namespaces, priority classes, runtime classes.

use serde_json::{Value, json};

/// Upstream's four namespaces.
pub(super) fn namespaces() -> Vec<Value> {
    let namespace = |name: &&str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    ["default", "kube-system", "kube-public", "kube-node-lease"].iter().map(namespace).collect()
}

/// Priority classes of system Pods, and the two runtime classes.
pub(super) fn classes() -> Vec<Value> {
    let priority = |name: &str, value: i64, description: &str| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "description": description,
        })
    };
    let runtime =
        |handler: &str| json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": handler}, "handler": handler});
    vec![
        priority("system-node-critical", 2_000_001_000, "Used for system critical pods that must not be moved from their current node."),
        priority(
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        runtime("wasmtime"),
        runtime("runc"),
    ]
}
