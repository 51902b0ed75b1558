//! The cost of 10,000 and 100,000 Pods with one watch for each of 5,000 nodes, and the cost of a custom resource
//! compared with a built-in one. Only the server runs: no scheduler, and of the controllers only the one without which
//! no Pod can be created.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{Method, StatusCode};
use tokio::sync::Semaphore;

use crate::load::{Client, in_flight};
use crate::process::{Meter, pss_kib};
use crate::report::{Table, mib};

/// Arguments of `skiff` for such a server.
pub const SERVER: &[&str] = &["server", "--scheduler=false", "--controllers=serviceaccount-controller"];

const SIZES: [usize; 2] = [10_000, 100_000];
const NODES: usize = 5_000;
const NAMESPACES: usize = 100;
const AT_ONCE: usize = 64;
/// Below the server's limit of streams on one connection.
const WATCHES_PER_CONNECTION: usize = 200;
const UPDATES: usize = 2_000;
const PAGE: usize = 500;
/// Minimum number of objects that each way of listing lists.
const LISTED: usize = 300_000;
/// Number of objects of a custom kind, and of a built-in kind.
const OBJECTS: usize = 10_000;
const WIDGETS: &str = "/apis/bench.example.com/v1/namespaces/default/widgets";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub async fn run(kubeconfig: &str, pid: u32) {
    let client = Client::connect(kubeconfig).await;
    custom(&client, pid).await;
    pods(kubeconfig, &client, pid).await;
}

/// Ten thousand objects of a custom kind, and as many ConfigMaps with the same content.
async fn custom(client: &Client, pid: u32) {
    define(client).await;
    let table = Table::work();
    for (what, path, api_version, kind) in
        [("ConfigMap", CONFIG_MAPS, "v1", "ConfigMap"), ("custom object", WIDGETS, "bench.example.com/v1", "Widget")]
    {
        let body = move |n: usize| {
            let data = serde_json::json!({"size": "small", "filler": "x".repeat(900)});
            let object =
                serde_json::json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": format!("object-{n}")}, "data": data});
            Bytes::from(object.to_string())
        };
        let meter = Meter::start(pid).await;
        post(client, OBJECTS, move |n| (path.to_owned(), body(n))).await;
        table.spent(&meter.spent().await, &format!("{what} created"), OBJECTS, None);
        let (lists, meter) = (LISTED / OBJECTS, Meter::start(pid).await);
        for _ in 0..lists {
            list(client, path).await;
        }
        table.spent(&meter.spent().await, &format!("{what} listed, {OBJECTS} at once"), lists * OBJECTS, None);
    }
}

async fn define(client: &Client) {
    let data = serde_json::json!({"type": "object", "properties": {"size": {"type": "string"}, "filler": {"type": "string"}}});
    let schema = serde_json::json!({"openAPIV3Schema": {"type": "object", "properties": {"data": data}}});
    let definition = serde_json::json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.bench.example.com"},
        "spec": {
            "group": "bench.example.com", "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    drop(client.call(Method::POST, path, "application/json", Bytes::from(definition.to_string())).await);
    while client.send(Method::GET, WIDGETS, "application/json", Bytes::new()).await.status() != StatusCode::OK {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn pods(kubeconfig: &str, client: &Client, pid: u32) {
    namespaces(client).await;
    let table = Table::work();
    let meter = Meter::start(pid).await;
    let delivered = watch(kubeconfig).await;
    table.spent(&meter.spent().await, "watch of a node's Pods begun", NODES, None);
    let empty = pss_kib(pid);
    let (mut have, mut sizes) = (0, Vec::new());
    for size in SIZES {
        let meter = Meter::start(pid).await;
        post(client, size - have, move |n| (format!("/api/v1/namespaces/{}/pods", namespace(have + n)), pod(have + n))).await;
        until(&delivered, size - have).await;
        table.spent(&meter.spent().await, &format!("{size} Pods: created, and its node told"), size - have, None);
        have = size;
        updates(client, &delivered, pid, &table, size).await;
        lists(client, pid, &table, size).await;
        sizes.push((size, pss_kib(pid).saturating_sub(empty)));
    }
    let table = Table::sizes();
    for (size, kib) in sizes {
        table.is(
            &format!("{size} Pods, beside what the server weighed without"),
            &format!("{}, {} a Pod", mib(kib), bytes(kib * 1024 / size as u64)),
        );
    }
}

fn bytes(bytes: u64) -> String {
    format!("{:.1} KiB", bytes as f64 / 1024.0)
}

/// Changes spread over all Pods. One watcher receives each change.
async fn updates(client: &Client, delivered: &Semaphore, pid: u32, table: &Table, size: usize) {
    let meter = Meter::start(pid).await;
    in_flight(UPDATES, AT_ONCE, |n| {
        let (client, n) = (client.clone(), n * (size / UPDATES));
        async move {
            let path = format!("/api/v1/namespaces/{}/pods/pod-{n}", namespace(n));
            let patch = Bytes::from(format!(r#"{{"metadata":{{"labels":{{"size":"{size}"}}}}}}"#));
            drop(client.call(Method::PATCH, &path, "application/merge-patch+json", patch).await);
        }
    })
    .await;
    until(delivered, UPDATES).await;
    table.spent(&meter.spent().await, &format!("{size} Pods: one changed, and its node told"), UPDATES, None);
}

async fn lists(client: &Client, pid: u32, table: &Table, size: usize) {
    let rounds = LISTED / size;
    let meter = Meter::start(pid).await;
    for _ in 0..rounds {
        list(client, "/api/v1/pods").await;
    }
    table.spent(&meter.spent().await, &format!("{size} Pods: one listed, with all others"), rounds * size, None);
    let meter = Meter::start(pid).await;
    for n in 0..rounds * NAMESPACES {
        list(client, &format!("/api/v1/namespaces/{}/pods", namespace(n))).await;
    }
    table.spent(&meter.spent().await, &format!("{size} Pods: one listed, with its namespace's"), rounds * size, None);
    let meter = Meter::start(pid).await;
    for _ in 0..rounds {
        let (mut pages, mut next) = (0, Some(String::new()));
        while let Some(token) = next {
            next = token_of(&list(client, &format!("/api/v1/pods?limit={PAGE}&continue={token}")).await);
            pages += 1;
        }
        assert_eq!(pages, size.div_ceil(PAGE), "every Pod is on one page");
    }
    table.spent(&meter.spent().await, &format!("{size} Pods: one listed, in pages of {PAGE}"), rounds * size, None);
}

/// Reads a list to its end; returns its beginning.
async fn list(client: &Client, path: &str) -> Bytes {
    let response = client.send(Method::GET, path, "application/json", Bytes::new()).await;
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    let mut body = response.into_body();
    let mut head = None;
    while let Some(frame) = body.frame().await {
        let data = frame.expect("the list goes on").into_data().unwrap_or_default();
        head.get_or_insert(data);
    }
    head.expect("a list")
}

fn token_of(head: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(head);
    let metadata = head.split("\"items\":[").next().expect("a list");
    metadata.split_once("\"continue\":\"")?.1.split_once('"').map(|(token, _)| token.to_owned())
}

/// Creates the namespaces and makes them ready for Pods.
async fn namespaces(client: &Client) {
    let object = |n| serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace(n)}});
    post(client, NAMESPACES, move |n| ("/api/v1/namespaces".to_owned(), Bytes::from(object(n).to_string()))).await;
    for n in 0..NAMESPACES {
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/default", namespace(n));
        while client.send(Method::GET, &path, "application/json", Bytes::new()).await.status() != StatusCode::OK {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

fn namespace(n: usize) -> String {
    format!("ns-{}", n % NAMESPACES)
}

fn pod(n: usize) -> Bytes {
    let container = serde_json::json!({
        "name": "web", "image": "registry.example.com/web:1.2.3", "args": ["--listen=:8080"], "ports": [{"containerPort": 8080}],
        "env": [{"name": "MODE", "value": "production"}],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
    });
    let labels = serde_json::json!({"app": "web", "pod-template-hash": "7d4b9c6f5"});
    let object = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{n}"), "labels": labels},
        "spec": {"nodeName": format!("node-{}", n % NODES), "containers": [container]},
    });
    Bytes::from(object.to_string())
}

/// Starts a watch for each node. The semaphore counts the received changes.
async fn watch(kubeconfig: &str) -> Arc<Semaphore> {
    let delivered = Arc::new(Semaphore::new(0));
    for first in (0..NODES).step_by(WATCHES_PER_CONNECTION) {
        let client = Client::connect(kubeconfig).await;
        for node in first..NODES.min(first + WATCHES_PER_CONNECTION) {
            let path = format!("/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3Dnode-{node}");
            let response = client.send(Method::GET, &path, "application/json", Bytes::new()).await;
            assert_eq!(response.status(), StatusCode::OK, "{path}");
            let (mut body, delivered) = (response.into_body(), Arc::clone(&delivered));
            tokio::spawn(async move {
                while let Some(Ok(frame)) = body.frame().await {
                    delivered.add_permits(frame.data_ref().map_or(0, |data| data.iter().filter(|&&byte| byte == b'\n').count()));
                }
            });
        }
    }
    delivered
}

/// Waits until that many more changes were received.
async fn until(delivered: &Semaphore, count: usize) {
    delivered.acquire_many(u32::try_from(count).expect("fits")).await.expect("all arrive").forget();
}

/// Creates objects.
pub async fn post(client: &Client, count: usize, object: impl Fn(usize) -> (String, Bytes) + Clone + Send + 'static) {
    in_flight(count, AT_ONCE, |n| {
        let (client, object) = (client.clone(), object.clone());
        async move {
            let (path, body) = object(n);
            drop(client.call(Method::POST, &path, "application/json", body).await);
        }
    })
    .await;
}
