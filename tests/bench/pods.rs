//! The time from a Pod's creation to Ready, with cached images, one Pod at a time on an idle node, and the node's parts of it.

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};

use crate::process::{Meter, Spent, quiet};
use crate::report::{Table, human};

const ROUNDS: usize = 40;
const LIMIT: Duration = Duration::from_secs(30);
/// The node's operations of a start, in their order, as `kubelet_runtime_operations_duration_seconds` names them.
const OPERATIONS: [&str; 3] = ["run_podsandbox", "create_container", "start_container"];

pub async fn run(kubeconfig: &str, pid: u32) {
    let client = client(kubeconfig).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut kinds = Vec::new();
    for (kind, image, command) in [("WASM", "samples/web:latest", &[][..]), ("OCI", "samples/tools:latest", &["sleep", "1000"][..])] {
        let meter = Meter::start(pid).await;
        let operations = operations(&client).await;
        let mut samples = Vec::with_capacity(ROUNDS);
        let mut wall = Duration::ZERO;
        for round in 0..=ROUNDS {
            // What the node and the kernel clean up after a Pod is not a part of the next one's start.
            quiet(pid).await;
            let began = Instant::now();
            let took = created_to_ready(&pods, &format!("{}-{round}", kind.to_lowercase()), image, command).await;
            wall += began.elapsed();
            // The first Pod is not counted, because its image is not cached: it is compiled and unpacked.
            if round > 0 {
                samples.push(took);
            }
        }
        let operations = means(operations, self::operations(&client).await);
        kinds.push((kind, Spent { wall, ..meter.spent().await }, samples, operations));
    }
    let table = Table::work();
    for (kind, spent, ..) in &kinds {
        table.spent(spent, &format!("{kind} Pod made and removed"), ROUNDS + 1, None);
    }
    let table = Table::latency();
    for (kind, _, samples, _) in &kinds {
        table.took(&format!("{kind} Pod, created to Ready, image cached"), samples.clone());
    }
    let table = Table::sizes();
    for (kind, .., operations) in kinds {
        for (operation, mean) in operations {
            table.is(&format!("{kind} Pod: mean of `{operation}`"), &human(mean));
        }
    }
}

/// How often each of the node's operations took place, and the seconds that they took.
async fn operations(client: &Client) -> [(f64, f64); OPERATIONS.len()] {
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await.expect("nodes");
    let node = nodes.items.first().and_then(|node| node.metadata.name.clone()).expect("a node");
    let request = hyper::Request::get(format!("/api/v1/nodes/{node}/proxy/metrics")).body(Vec::new()).expect("a request");
    let text = client.request_text(request).await.expect("metrics");
    let value = |suffix: &str, operation: &str| {
        let series = format!("kubelet_runtime_operations_duration_seconds_{suffix}{{operation_type=\"{operation}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok()).unwrap_or_default()
    };
    OPERATIONS.map(|operation| (value("count", operation), value("sum", operation)))
}

/// The means of what took place between two readings.
fn means(before: [(f64, f64); OPERATIONS.len()], after: [(f64, f64); OPERATIONS.len()]) -> Vec<(&'static str, Duration)> {
    let spent = before.into_iter().zip(after).map(|(before, after)| (after.0 - before.0, after.1 - before.1));
    let all = OPERATIONS.into_iter().zip(spent).filter(|(_, (count, _))| *count > 0.0);
    all.map(|(operation, (count, seconds))| (operation, Duration::from_secs_f64(seconds / count))).collect()
}

/// A client with a kubeconfig.
pub async fn client(path: &str) -> Client {
    let _first = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = kube::config::Kubeconfig::read_from(path).expect("a kubeconfig");
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await.expect("a configuration");
    Client::try_from(config).expect("a client")
}

/// A Pod of one container.
pub fn pod(name: &str, image: &str, command: &[&str]) -> Pod {
    let command = (!command.is_empty()).then_some(command);
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": image, "imagePullPolicy": "IfNotPresent", "command": command}],
        },
    }))
    .expect("a Pod")
}

async fn created_to_ready(pods: &Api<Pod>, name: &str, image: &str, command: &[&str]) -> Duration {
    let (took, _) = ready(pods, pod(name, image, command)).await;
    let mut events = watch(pods, name).await;
    pods.delete(name, &DeleteParams::default().grace_period(0)).await.expect("deletes");
    let gone = async { while !matches!(events.next().await.expect("the watch goes on").expect("an event"), WatchEvent::Deleted(_)) {} };
    tokio::time::timeout(LIMIT, gone).await.expect("gone in time");
    took
}

async fn watch(pods: &Api<Pod>, name: &str) -> BoxStream<'static, kube::Result<WatchEvent<Pod>>> {
    let watching = WatchParams::default().fields(&format!("metadata.name={name}"));
    pods.watch(&watching, "0").await.expect("watches").boxed()
}

/// Creates a Pod and waits until it is ready; returns the time that it took, and the Pod.
pub async fn ready(pods: &Api<Pod>, pod: Pod) -> (Duration, Pod) {
    let name = pod.metadata.name.as_deref().expect("a name");
    let mut events = watch(pods, name).await;
    let began = Instant::now();
    pods.create(&PostParams::default(), &pod).await.expect("creates");
    let ready = async {
        loop {
            let event = events.next().await.expect("the watch goes on").expect("an event");
            if let WatchEvent::Added(pod) | WatchEvent::Modified(pod) = event
                && is_ready(&pod)
            {
                return pod;
            }
        }
    };
    let pod = tokio::time::timeout(LIMIT, ready).await.expect("ready in time");
    (began.elapsed(), pod)
}

/// Whether a Pod is ready.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
