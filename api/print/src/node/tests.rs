use serde_json::json;

use crate::tests::row;

#[test]
fn nodes_tell_state_roles_and_versions() {
    let node = json!({
        "metadata": {"labels": {"node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "edge", "node-role.kubernetes.io/": ""}},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
            "addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "ExternalIP", "address": "1.2.3.4"}],
            "nodeInfo": {"kubeletVersion": "v1.37.0", "osImage": "Debian", "kernelVersion": "6.1", "containerRuntimeVersion": "skiff://0.1"},
        },
    });
    assert_eq!(
        row("", "Node", node),
        "x | Ready,SchedulingDisabled | control-plane,edge | 90m | v1.37.0 | 10.0.0.1 | 1.2.3.4 | Debian | 6.1 | skiff://0.1"
    );
    let lost = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    assert_eq!(row("", "Node", lost), "x | NotReady | <none> | 90m |  | <none> | <none> | <unknown> | <unknown> | <unknown>");
    assert_eq!(row("", "Node", json!({})), "x | Unknown | <none> | 90m |  | <none> | <none> | <unknown> | <unknown> | <unknown>");
}

#[test]
fn classes_and_leases() {
    assert_eq!(row("node.k8s.io", "RuntimeClass", json!({"handler": "wasmtime"})), "x | wasmtime | 90m");
    let class = json!({"value": 1000, "globalDefault": true, "preemptionPolicy": "Never"});
    assert_eq!(row("scheduling.k8s.io", "PriorityClass", class), "x | 1000 | true | 90m | Never");
    assert_eq!(row("coordination.k8s.io", "Lease", json!({"spec": {"holderIdentity": "n1"}})), "x | n1 | 90m");
}
