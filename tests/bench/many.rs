//! Many Pods on one real node: created at once, removed at once, idle, and adopted by an agent that starts after a crash.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use tests::Cluster;

use crate::load::Client;
use crate::memory::{settle, shims_kib};
use crate::pods::pod;
use crate::process::{Meter, Spent, cpu, pss_kib};
use crate::report::{Table, human, mib};
use crate::scale::post;

/// The cluster: its node has an address for each Pod.
pub const CLUSTER: &[&str] = &["up", "--max-pods=6000", "--node-cidr-mask-size=19"];
/// The Pods that an agent adopts.
const ADOPTED: usize = 2_000;
const IDLE_PODS: usize = 5_000;
/// How long the CPU time of idle Pods is observed: a multiple of all periods.
const OBSERVED: Duration = Duration::from_secs(60);
/// After that time without requests, nodes are read more rarely.
const UNTIL_REST: Duration = Duration::from_secs(130);
const LIMIT: Duration = Duration::from_secs(400);
/// How often an adoption is looked at.
const POLL: Duration = Duration::from_millis(30);
const PODS: &str = "/api/v1/namespaces/default/pods";
const WASM: (&str, &[&str]) = ("samples/web:latest", &[]);
const OCI: (&str, &[&str]) = ("samples/tools:latest", &["sleep", "1000"]);

/// What the bench reads of a watch event.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Object,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    name: Option<String>,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

/// Starts and removes Pods; leaves [`ADOPTED`] of them.
pub async fn run(kubeconfig: &str, pid: u32) {
    let client = Client::connect(kubeconfig).await;
    for (name, image) in [("first-wasm", WASM), ("first-oci", OCI)] {
        // The first Pod of an image compiles or unpacks it.
        create(&client, name, 1, image).await;
        remove(&client, 1).await;
    }
    let mut rows = Vec::new();
    for (kind, image, count) in [("WASM", WASM, 200), ("WASM", WASM, 300), ("WASM", WASM, 500), ("OCI", OCI, 30)] {
        let meter = Meter::start(pid).await;
        create(&client, &format!("{}-{count}", kind.to_lowercase()), count, image).await;
        rows.push((meter.spent().await, format!("{kind} Pods created at once, until all are Ready"), count));
        let meter = Meter::start(pid).await;
        remove(&client, count).await;
        rows.push((meter.spent().await, format!("{kind} Pods deleted at once, until all are gone"), count));
    }
    let before = (pss_kib(pid), shims_kib());
    let meter = Meter::start(pid).await;
    create(&client, "adopted", ADOPTED, WASM).await;
    rows.push((meter.spent().await, "WASM Pods created at once, until all are Ready".to_owned(), ADOPTED));
    print(&rows);
    idle(pid, ADOPTED, before).await;
}

/// Adds Pods until there are [`IDLE_PODS`], measures how they rest, and removes them.
pub async fn more(kubeconfig: &str, pid: u32) {
    let client = Client::connect(kubeconfig).await;
    let before = (pss_kib(pid), shims_kib());
    let count = IDLE_PODS - ADOPTED;
    let meter = Meter::start(pid).await;
    create(&client, "idle", count, WASM).await;
    let created = (meter.spent().await, format!("WASM Pods created at once beside {ADOPTED}, until all are Ready"), count);
    print(&[created]);
    idle(pid, count, before).await;
    resting(&client, pid).await;
    // The server has closed the connection, which rested for longer than a minute.
    let client = Client::connect(kubeconfig).await;
    let meter = Meter::start(pid).await;
    remove(&client, IDLE_PODS).await;
    print(&[(meter.spent().await, "WASM Pods deleted at once, until all are gone".to_owned(), IDLE_PODS)]);
}

/// Kills the process and starts it again; returns the time until its agent reports that all Pods run. `wait` runs [`adopted`].
pub fn adopt(cluster: &mut Cluster, wait: impl FnOnce(&Cluster)) -> String {
    let shims = cluster.shims();
    cluster.kill();
    let began = Instant::now();
    cluster.start();
    let ready = began.elapsed();
    wait(cluster);
    let took = began.elapsed();
    assert_eq!(cluster.shims(), shims, "no container was restarted");
    format!(
        "\n| process killed with {ADOPTED} Pods | took |\n|---|---:|\n| start to ready | {} |\n| start to all Pods running, none restarted | {} |\n",
        human(ready),
        human(took)
    )
}

/// Waits until the agent reports that all Pods run.
pub async fn adopted(kubeconfig: &str) {
    let client = Client::connect(kubeconfig).await;
    let nodes: serde_json::Value = serde_json::from_slice(&client.get("/api/v1/nodes").await).expect("JSON");
    let path = format!("/api/v1/nodes/{}/proxy/metrics", nodes["items"][0]["metadata"]["name"].as_str().expect("a node"));
    let (all, began) = (format!("kubelet_running_pods {ADOPTED}"), Instant::now());
    loop {
        let response = client.send(Method::GET, &path, "text/plain", Bytes::new()).await;
        let page = response.into_body().collect().await.expect("a page").to_bytes();
        if String::from_utf8_lossy(&page).lines().any(|line| line == all) {
            return;
        }
        assert!(began.elapsed() < LIMIT, "{}", String::from_utf8_lossy(&page));
        tokio::time::sleep(POLL).await;
    }
}

fn print(rows: &[(Spent, String, usize)]) {
    let table = Table::work();
    for (spent, work, count) in rows {
        table.spent(spent, work, *count, None);
    }
}

/// Prints what `count` Pods weigh that came since `before`: KiB of the process and of all shims.
async fn idle(pid: u32, count: usize, before: (u64, u64)) {
    settle().await;
    let (process, shims) = (pss_kib(pid), shims_kib());
    let each = |after: u64, before: u64| format!("{} KiB", after.saturating_sub(before) / count as u64);
    let table = Table::sizes();
    table.is("the one process, all WASM Pods idle: memory (PSS)", &mib(process));
    table.is(&format!("one of {count} Pods: its shim"), &each(shims, before.1));
    table.is(&format!("one of {count} Pods: the one process"), &each(process, before.0));
}

/// Prints the CPU time of a process whose Pods are idle: with the requests of an autoscaler, which asks for metrics, and without.
async fn resting(client: &Client, pid: u32) {
    let table = Table::sizes();
    let share = |used: Duration| format!("{:.2} % of a core", used.as_secs_f64() / OBSERVED.as_secs_f64() * 100.0);
    let used = cpu(pid);
    for _ in 0..4 {
        client.get("/apis/metrics.k8s.io/v1beta1/nodes").await;
        tokio::time::sleep(OBSERVED / 4).await;
    }
    table.is("the one process, all WASM Pods idle, metrics asked for each 15 s: CPU", &share(cpu(pid).saturating_sub(used)));
    tokio::time::sleep(UNTIL_REST).await;
    let used = cpu(pid);
    tokio::time::sleep(OBSERVED).await;
    table.is("the one process, all WASM Pods idle, nobody asks for metrics: CPU", &share(cpu(pid).saturating_sub(used)));
}

/// Creates Pods and waits until all of them are ready.
async fn create(client: &Client, name: &str, count: usize, image: (&'static str, &'static [&'static str])) {
    let events = watch(client).await;
    let name = name.to_owned();
    let object = move |n| {
        let pod = pod(&format!("{name}-{n}"), image.0, image.1);
        (PODS.to_owned(), Bytes::from(serde_json::to_vec(&pod).expect("JSON")))
    };
    let made = post(client, count, object);
    let ready = until(events, count, |event| {
        event.kind == "MODIFIED" && event.object.status.conditions.iter().any(|one| one.kind == "Ready" && one.status == "True")
    });
    tokio::join!(made, ready);
}

/// Deletes all Pods and waits until they are gone.
async fn remove(client: &Client, count: usize) {
    let events = watch(client).await;
    let body = Bytes::from_static(br#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}"#);
    let gone = until(events, count, |event| event.kind == "DELETED");
    // Thousands may take longer than a request may: the next one goes on.
    let deleted = async {
        loop {
            let status = client.send(Method::DELETE, PODS, "application/json", body.clone()).await.status();
            match status {
                StatusCode::OK => return,
                status => assert_eq!(status, StatusCode::GATEWAY_TIMEOUT, "{PODS}"),
            }
        }
    };
    tokio::join!(deleted, gone);
}

/// A watch of all Pods from now on.
async fn watch(client: &Client) -> Incoming {
    let list: serde_json::Value = serde_json::from_slice(&client.get(&format!("{PODS}?limit=1")).await).expect("JSON");
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
    let path = format!("{PODS}?watch=true&resourceVersion={version}");
    let response = client.send(Method::GET, &path, "application/json", Bytes::new()).await;
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    response.into_body()
}

/// Waits until the event happened to `count` Pods.
async fn until(mut events: Incoming, count: usize, happened: impl Fn(&Event) -> bool) {
    let (mut names, mut buffer) = (HashSet::new(), Vec::new());
    let all = async {
        while names.len() < count {
            let frame = events.frame().await.expect("the watch goes on").expect("the watch goes on");
            buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let event: Event = serde_json::from_slice(&buffer[..end]).expect("an event");
                if happened(&event) {
                    names.extend(event.object.metadata.name);
                }
                buffer.drain(..=end);
            }
        }
    };
    let done = tokio::time::timeout(LIMIT, all).await.is_ok();
    assert!(done, "{} of {count} Pods in time", names.len());
}
