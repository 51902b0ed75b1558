//! Pods bound a second, from creation to binding, on fake nodes without agents.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;

use crate::load::{Client, in_flight};
use crate::process::Meter;
use crate::report::Table;

const NODES: usize = 1_000;
const PODS: usize = 2_000;
const AT_ONCE: usize = 64;
const LIMIT: Duration = Duration::from_secs(120);

fn node(n: usize) -> Bytes {
    let capacity = serde_json::json!({"cpu": "32", "memory": "128Gi", "pods": "110"});
    let object = serde_json::json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("fake-{n}"), "labels": {"kubernetes.io/hostname": format!("fake-{n}")}},
        "spec": {},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [{"type": "Ready", "status": "True", "reason": "Fake", "message": "", "lastHeartbeatTime": null, "lastTransitionTime": null}]},
    });
    Bytes::from(object.to_string())
}

fn pod(n: usize) -> Bytes {
    let object = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{n}"), "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]},
    });
    Bytes::from(object.to_string())
}

pub async fn run(kubeconfig: &str, pid: u32) {
    let client = Client::connect(kubeconfig).await;
    let create = |path: &'static str, count: usize, body: fn(usize) -> Bytes| {
        let client = client.clone();
        in_flight(count, AT_ONCE, move |n| {
            let client = client.clone();
            async move { drop(client.call(Method::POST, path, "application/json", body(n)).await) }
        })
    };
    create("/api/v1/nodes", NODES, node).await;
    // Makes the nodes Ready, and removes the taint of a new node. The controllers that would set both again do not run.
    for part in ["/status", ""] {
        in_flight(NODES, AT_ONCE, |n| {
            let client = client.clone();
            async move { drop(client.call(Method::PUT, &format!("/api/v1/nodes/fake-{n}{part}"), "application/json", node(n)).await) }
        })
        .await;
    }
    let meter = Meter::start(pid).await;
    create("/api/v1/namespaces/default/pods", PODS, pod).await;
    tokio::time::timeout(LIMIT, until_all_bound(&client)).await.expect("all Pods are bound in time");
    Table::work().spent(&meter.spent().await, &format!("Pod created and bound, {NODES} nodes"), PODS, None);
}

/// Lists Pods without a node again and again until there are none.
async fn until_all_bound(client: &Client) {
    let path = "/api/v1/pods?fieldSelector=spec.nodeName%3D";
    loop {
        let list: serde_json::Value = serde_json::from_slice(&client.get(&format!("{path}&limit=1")).await).expect("a list");
        if list["items"].as_array().is_none_or(Vec::is_empty) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
