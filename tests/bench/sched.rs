//! Pods bound a second, from creation to binding, on fake nodes without agents.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use crate::load::{Client, in_flight};
use crate::process::{Meter, Spent};
use crate::report::{Table, human};

const AT_ONCE: usize = 64;
const LIMIT: Duration = Duration::from_secs(120);

fn node(n: usize) -> Bytes {
    let capacity = serde_json::json!({"cpu": "32", "memory": "128Gi", "pods": "110"});
    let object = serde_json::json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("fake-{n}"), "labels": {"kubernetes.io/hostname": format!("fake-{n}"), "zone": format!("zone-{}", n % 10)}},
        "spec": {},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [{"type": "Ready", "status": "True", "reason": "Fake", "message": "", "lastHeartbeatTime": null, "lastTransitionTime": null}]},
    });
    Bytes::from(object.to_string())
}

/// A Pod of an app, with more in its spec.
fn pod(app: &str, n: usize, more: &Value) -> Bytes {
    let mut spec = json!({"containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]});
    more.as_object().into_iter().flatten().for_each(|(key, value)| spec[key] = value.clone());
    let metadata = json!({"name": format!("{app}-{n}"), "namespace": "default", "labels": {"app": app}});
    Bytes::from(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).to_string())
}

/// Each Pod on a node of its own.
fn apart(app: &str) -> Value {
    let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"});
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

/// Each zone with the same number of Pods.
fn spread(app: &str) -> Value {
    let selector = json!({"matchLabels": {"app": app}});
    let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector});
    json!({"topologySpreadConstraints": [constraint]})
}

/// A Pod that needs most of a node, and ends at once when it is preempted.
fn large(class: &str) -> Value {
    let container = json!({"name": "c", "image": "none", "resources": {"requests": {"cpu": "20"}}});
    json!({"priorityClassName": class, "terminationGracePeriodSeconds": 0, "containers": [container]})
}

pub async fn run(kubeconfig: &str, pid: u32) {
    let client = Client::connect(kubeconfig).await;
    let table = Table::work();
    add_nodes(&client, 0..1_000).await;
    bind(&client, &table, pid, "plain", 2_000, &json!({}), "1,000 nodes").await;
    add_nodes(&client, 1_000..5_000).await;
    bind(&client, &table, pid, "plain-more", 2_000, &json!({}), "5,000 nodes").await;
    bind(&client, &table, pid, "plain-many", 10_000, &json!({}), "10,000 of them, 5,000 nodes").await;
    bind(&client, &table, pid, "apart", 1_000, &apart("apart"), "required anti-affinity, 5,000 nodes").await;
    bind(&client, &table, pid, "spread", 1_000, &spread("spread"), "topology spread, 5,000 nodes").await;
    scale(&client, &table, pid, 10_000).await;
    add_priority_class(&client, "low", 1).await;
    add_priority_class(&client, "high", 2).await;
    bind(&client, &table, pid, "low", 5_000, &large("low"), "one a node, 5,000 nodes").await;
    bind(&client, &table, pid, "high", 1_000, &large("high"), "preemption, 5,000 nodes").await;
}

/// A Deployment grows from nothing. Its Pods have the default spread constraints.
async fn scale(client: &Client, table: &Table, pid: u32, replicas: usize) {
    let container = json!({"name": "c", "image": "none", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}});
    let template = json!({"metadata": {"labels": {"app": "scaled"}}, "spec": {"containers": [container]}});
    let spec = json!({"replicas": 0, "selector": {"matchLabels": {"app": "scaled"}}, "template": template});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "scaled"}, "spec": spec});
    let all = "/apis/apps/v1/namespaces/default/deployments";
    let one = format!("{all}/scaled");
    drop(client.call(Method::POST, all, "application/json", Bytes::from(deployment.to_string())).await);
    let before = cycles(client).await;
    let meter = Meter::start(pid).await;
    let patch = json!({"spec": {"replicas": replicas}}).to_string();
    drop(client.call(Method::PATCH, &one, "application/merge-patch+json", Bytes::from(patch)).await);
    let all_bound = async {
        while parsed(client.get(&one).await)["status"]["replicas"].as_u64() != Some(replicas as u64) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        until_none_waits(client).await;
    };
    tokio::time::timeout(LIMIT, all_bound).await.expect("all Pods are bound in time");
    row(client, table, &meter.spent().await, before, "Deployment's Pod created and bound, 5,000 nodes", replicas).await;
}

async fn add_priority_class(client: &Client, name: &str, value: i32) {
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value});
    let body = Bytes::from(class.to_string());
    drop(client.call(Method::POST, "/apis/scheduling.k8s.io/v1/priorityclasses", "application/json", body).await);
}

async fn add_nodes(client: &Client, numbers: Range<usize>) {
    let first = numbers.start;
    let write = |method: Method, path: fn(usize) -> String| {
        in_flight(numbers.len(), AT_ONCE, move |n| {
            let (client, method, n) = (client.clone(), method.clone(), first + n);
            async move { drop(client.call(method, &path(n), "application/json", node(n)).await) }
        })
    };
    write(Method::POST, |_| "/api/v1/nodes".to_owned()).await;
    // Makes the nodes Ready, and removes the taint of a new node. The controllers that would set both again do not run.
    write(Method::PUT, |n| format!("/api/v1/nodes/fake-{n}/status")).await;
    write(Method::PUT, |n| format!("/api/v1/nodes/fake-{n}")).await;
}

/// The number of scheduling cycles so far, and the seconds that they took.
async fn cycles(client: &Client) -> [f64; 2] {
    let text = client.get("/metrics").await;
    let text = String::from_utf8_lossy(&text);
    ["count", "sum"].map(|what| {
        let name = format!("scheduler_scheduling_algorithm_duration_seconds_{what} ");
        text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or_default()
    })
}

/// Measures from the first creation until all Pods are bound.
async fn bind(client: &Client, table: &Table, pid: u32, app: &'static str, count: usize, more: &Value, what: &str) {
    let before = cycles(client).await;
    let meter = Meter::start(pid).await;
    in_flight(count, AT_ONCE, |n| {
        let (client, body) = (client.clone(), pod(app, n, more));
        async move { drop(client.call(Method::POST, "/api/v1/namespaces/default/pods", "application/json", body).await) }
    })
    .await;
    let last = format!("/api/v1/namespaces/default/pods/{app}-{}", count - 1);
    tokio::time::timeout(LIMIT, until_all_bound(client, &last)).await.expect("all Pods are bound in time");
    row(client, table, &meter.spent().await, before, &format!("Pod created and bound, {what}"), count).await;
}

/// Prints what `count` Pods cost, with the cycles since `before`.
async fn row(client: &Client, table: &Table, spent: &Spent, before: [f64; 2], what: &str, count: usize) {
    let [cycles, seconds] = cycles(client).await;
    let cycles = cycles - before[0];
    let cycle = human(Duration::from_secs_f64((seconds - before[1]) / cycles.max(1.0)));
    table.spent(spent, &format!("{what} ({:.1} cycles of {cycle})", cycles / count as f64), count, None);
}

/// Waits for the last Pod, which is cheap for the server, and then until a list has no Pod without a node.
async fn until_all_bound(client: &Client, last: &str) {
    while parsed(client.get(last).await)["spec"]["nodeName"].is_null() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until_none_waits(client).await;
}

fn parsed(body: Bytes) -> Value {
    serde_json::from_slice(&body).expect("JSON")
}

async fn until_none_waits(client: &Client) {
    let path = "/api/v1/pods?fieldSelector=spec.nodeName%3D&limit=1";
    while parsed(client.get(path).await)["items"].as_array().is_some_and(|items| !items.is_empty()) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
