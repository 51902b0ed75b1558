//! Memory and CPU use of an idle cluster, and memory of one more idle WASM Pod and of many Pods and Services.

use std::time::Duration;

use bytes::Bytes;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;

use crate::load::Client;
use crate::pods::{client, is_ready, pod};
use crate::process::{cpu, pss_kib};
use crate::report::{Table, mib};
use crate::scale::post;

/// The first Pods compile the guest and load what every later Pod shares.
const FIRST: usize = 10;
const MORE: usize = 50;
/// How long an idle process is observed.
const IDLE: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_secs(60);
/// Pods of a Node that does not run, and the Services that select them.
const PODS: usize = 10_000;
const SERVICES: usize = 1_000;
const NAMESPACE: &str = "/api/v1/namespaces/default";

pub async fn run(kubeconfig: &str, pid: u32) {
    let pods: Api<Pod> = Api::default_namespaced(client(kubeconfig).await);
    settle().await;
    let (before, used) = (pss_kib(pid), cpu(pid));
    settle().await;
    let idle = (cpu(pid).saturating_sub(used)).as_secs_f64() / IDLE.as_secs_f64() * 100.0;
    let table = Table::sizes();
    table.is("idle cluster, memory (PSS) of the one process", &mib(before));
    table.is("idle cluster, CPU", &format!("{idle:.2} % of a core"));
    run_until(&pods, FIRST).await;
    settle().await;
    let (process, shims) = (pss_kib(pid), shims_kib());
    table.is(&format!("with {FIRST} idle WASM Pods, the one process"), &mib(process));
    run_until(&pods, FIRST + MORE).await;
    settle().await;
    let (process, shims) = (pss_kib(pid).saturating_sub(process), shims_kib().saturating_sub(shims));
    table.is(&format!("{MORE} more: their shims"), &mib(shims));
    table.is(&format!("{MORE} more: the one process"), &mib(process));
    table.is("one more idle WASM Pod", &mib((shims + process) / MORE as u64));
    let before = pss_kib(pid);
    create_many(&Client::connect(kubeconfig).await).await;
    settle().await;
    table.is(&format!("{PODS} Pods of {SERVICES} Services: the one process"), &mib(pss_kib(pid).saturating_sub(before)));
}

/// Creates the Services, a Node that no agent reports for, and the Pods on the Node.
async fn create_many(client: &Client) {
    let body = |value: serde_json::Value| Bytes::from(value.to_string());
    post(client, 1, move |_| ("/api/v1/nodes".to_owned(), body(json!({"metadata": {"name": "absent"}})))).await;
    post(client, SERVICES, move |n| {
        let spec = json!({"clusterIP": "None", "selector": {"app": format!("web-{n}")}, "ports": [{"port": 80, "targetPort": 8080}]});
        (format!("{NAMESPACE}/services"), body(json!({"metadata": {"name": format!("web-{n}")}, "spec": spec})))
    })
    .await;
    post(client, PODS, move |n| {
        let env: Vec<_> = (0..10).map(|k| json!({"name": format!("VAR_{k}"), "value": "x".repeat(20)})).collect();
        let container = json!({
            "name": "web", "image": "registry.example/team/web:v1.2.3", "env": env, "ports": [{"containerPort": 8080}],
            "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}, "readinessProbe": {"httpGet": {"path": "/", "port": 8080}},
        });
        let labels = json!({"app": format!("web-{}", n % SERVICES), "pod-template-hash": "5d6f7c8b9"});
        let metadata = json!({"name": format!("web-{n}"), "labels": labels, "annotations": {"a/b": "c".repeat(80)}});
        (format!("{NAMESPACE}/pods"), body(json!({"metadata": metadata, "spec": {"nodeName": "absent", "containers": [container]}})))
    })
    .await;
}

/// Creates Pods until there are `count`, and waits until all are ready.
async fn run_until(pods: &Api<Pod>, count: usize) {
    let list = || async { pods.list(&ListParams::default()).await.expect("lists").items };
    for n in list().await.len()..count {
        pods.create(&PostParams::default(), &pod(&format!("idle-{n}"), "samples/web:latest", &[])).await.expect("creates");
    }
    let all_ready = async {
        while list().await.iter().filter(|pod| is_ready(pod)).count() < count {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(LIMIT, all_ready).await.expect("all are ready in time");
}

/// Waits until caches have settled, and writes dirty pages of new files to disk: until then they count as private
/// memory.
pub async fn settle() {
    nix::unistd::sync();
    tokio::time::sleep(IDLE).await;
}

/// The shims of all WASM containers.
pub fn shims() -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let shims = processes.filter_map(|entry| {
        let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
        // The kernel cuts a process' name after fifteen characters.
        if name.trim_end() == "skiff-shim-wasm" { entry.file_name().to_string_lossy().parse().ok() } else { None }
    });
    shims.collect()
}

/// Memory of all shims of WASM containers.
pub fn shims_kib() -> u64 {
    shims().into_iter().map(pss_kib).sum()
}
