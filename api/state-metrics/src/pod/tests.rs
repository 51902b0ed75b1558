use serde_json::{Value, json};

use crate::tests::{samples, text};

fn pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "report-x7k2p",
            "namespace": "shop",
            "uid": "0d1e",
            "creationTimestamp": "2026-10-14T03:00:00Z",
            "deletionTimestamp": "2026-10-14T05:00:00Z",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "report", "uid": "j", "controller": true}],
        },
        "spec": {
            "nodeName": "one",
            "restartPolicy": "OnFailure",
            "schedulerName": "default-scheduler",
            "serviceAccountName": "reporter",
            "runtimeClassName": "wasm",
            "priorityClassName": "low",
            "overhead": {"cpu": "10m", "memory": "1Mi"},
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "reports", "readOnly": true}},
                {"name": "scratch", "emptyDir": {}},
            ],
            "initContainers": [
                {"name": "fetch", "image": "fetch:1", "resources": {"limits": {"memory": "64Mi"}}},
                {"name": "proxy", "image": "proxy:1", "restartPolicy": "Always"},
            ],
            "containers": [
                {"name": "main", "image": "main:1", "resources": {
                    "requests": {"cpu": "250m", "memory": "1Gi", "nvidia.com/gpu": "2", "hugepages-2Mi": "4Mi", "example.com": "1"},
                    "limits": {"memory": "2Gi"},
                }},
                {"name": "slow", "image": "slow:1"},
                {"name": "done", "image": "done:1"},
                {"name": "absent", "image": "absent:1"},
            ],
        },
        "status": status(),
    })
}

fn status() -> Value {
    json!({
        "phase": "Running",
        "hostIP": "192.0.2.7",
        "podIP": "10.244.0.9",
        "podIPs": [{"ip": "10.244.0.9"}, {"ip": "fd00::9"}, {"ip": "nowhere"}],
        "qosClass": "Burstable",
        "startTime": "2026-10-14T03:00:01Z",
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-10-14T03:00:00Z"},
            {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-10-14T03:00:05Z"},
            {"type": "ContainersReady", "status": "False", "lastTransitionTime": "2026-10-14T03:00:06Z"},
            {"type": "Ready", "status": "False", "lastTransitionTime": "2026-10-14T03:00:06Z"},
        ],
        "initContainerStatuses": [
            {"name": "fetch", "image": "fetch:1", "imageID": "sha256:f", "ready": true, "restartCount": 1,
             "state": {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-10-14T03:00:04Z"}},
             "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}},
            {"name": "proxy", "image": "proxy:1", "imageID": "sha256:p", "ready": false, "restartCount": 0,
             "state": {"waiting": {"reason": "PodInitializing"}}},
        ],
        "containerStatuses": [
            {"name": "main", "image": "docker.io/main:1", "imageID": "sha256:m", "containerID": "skiff://m", "ready": true,
             "restartCount": 3, "state": {"running": {"startedAt": "2026-10-14T03:10:00Z"}},
             "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-10-14T03:09:50Z"}}},
            {"name": "slow", "image": "slow:1", "imageID": "", "ready": false, "restartCount": 0,
             "state": {"waiting": {"reason": "ImagePullBackOff"}}},
            {"name": "done", "image": "done:1", "imageID": "sha256:d", "ready": false, "restartCount": 0,
             "state": {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": "2026-10-14T03:00:07Z",
                                      "finishedAt": "2026-10-14T03:01:00Z"}}},
        ],
    })
}

#[test]
fn a_pod_has_its_families() {
    insta::assert_snapshot!(text("", "pods", &pod()));
}

#[test]
fn a_pod_without_a_node_is_unschedulable_since_a_time() {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                           "lastTransitionTime": "2026-10-14T03:00:00Z"});
    let pod = json!({"metadata": {"name": "p"}, "status": {"phase": "Pending", "conditions": [condition]}});
    let samples = samples("", "pods", &pod);
    let lines: Vec<&str> = samples.lines().filter(|line| line.starts_with("kube_pod_status_unsched")).collect();
    let labels = r#"{namespace="",pod="p",uid=""}"#;
    assert_eq!(
        lines,
        [format!("kube_pod_status_unschedulable{labels} 1"), format!("kube_pod_status_unscheduled_time{labels} 1.7919468e+09"),]
    );
}

#[test]
fn an_evicted_pod_has_its_reason() {
    let pod = json!({"metadata": {"name": "p"}, "status": {"phase": "Failed", "reason": "Evicted"}});
    assert!(samples("", "pods", &pod).contains(r#"kube_pod_status_reason{namespace="",pod="p",uid="",reason="Evicted"} 1"#));
}
