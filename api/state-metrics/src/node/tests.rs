use serde_json::json;

use crate::tests::text;

#[test]
fn a_node_has_its_families() {
    let node = json!({
        "metadata": {
            "name": "one",
            "creationTimestamp": "2026-10-14T03:00:00Z",
            "labels": {"kubernetes.io/os": "linux", "node-role.kubernetes.io/control-plane": "", "node-role.kubernetes.io/worker": ""},
        },
        "spec": {
            "podCIDR": "10.244.0.0/24",
            "providerID": "skiff://one",
            "unschedulable": true,
            "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
        },
        "status": {
            "addresses": [{"type": "InternalIP", "address": "192.0.2.7"}, {"type": "Hostname", "address": "one"}],
            "allocatable": {"cpu": "3900m", "memory": "7Gi", "pods": "110", "nvidia.com/gpu": "1"},
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100G", "hugepages-1Gi": "0", "strange": "1"},
            "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "MemoryPressure", "status": "Unknown"},
            ],
            "nodeInfo": {
                "kernelVersion": "6.1", "osImage": "Debian", "containerRuntimeVersion": "skiff://1", "kubeletVersion": "v1.37.0",
                "kubeProxyVersion": "", "systemUUID": "abc", "architecture": "amd64", "bootID": "b", "machineID": "m",
                "operatingSystem": "linux",
            },
        },
    });
    insta::assert_snapshot!(text("", "nodes", &node));
}

#[test]
fn a_namespace_has_its_families() {
    let namespace = json!({
        "metadata": {"name": "shop"},
        "status": {"phase": "Terminating", "conditions": [{"type": "NamespaceContentRemaining", "status": "True"}]},
    });
    insta::assert_snapshot!(text("", "namespaces", &namespace));
}
