//! The cost of requests: 64 in flight, 3,300 ConfigMaps of 1 KB, then watchers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Method;
use tokio::sync::Semaphore;

use crate::load::{Client, in_flight};
use crate::process::{Meter, pss_kib};
use crate::report::{Table, mib};

const OBJECTS: usize = 3_000;
const AT_ONCE: usize = 64;
const SINGLE: usize = 300;
const LISTS: usize = 300;
const WATCHERS: usize = 100;
const EVENTS: usize = 300;
/// How long an idle process needs to give back the memory that it does not need.
const QUIET: Duration = Duration::from_secs(20);
const BASE: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str, round: usize) -> Bytes {
    let filler = "x".repeat(900);
    let object = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default", "labels": {"bench": "api"}}, "data": {"round": round.to_string(), "filler": filler}});
    Bytes::from(object.to_string())
}

/// The CPU time that kube-apiserver and etcd together took for one unit of the same work.
const UPSTREAM: [Duration; 6] = [
    Duration::from_micros(720),
    Duration::from_micros(257),
    Duration::from_micros(783),
    Duration::from_micros(867),
    Duration::from_millis(84),
    Duration::from_micros(23),
];

pub async fn run(kubeconfig: &str, pid: u32) {
    let client = Client::connect(kubeconfig).await;
    let [create, get, update, patch, list, delivery] = UPSTREAM.map(Some);
    let table = &Table::work();
    let each =
        |work: &'static str, upstream, method: Method, content_type: &'static str, path: fn(usize) -> String, body: fn(usize) -> Bytes| {
            let client = client.clone();
            async move {
                let meter = Meter::start(pid).await;
                in_flight(OBJECTS, AT_ONCE, |n| {
                    let (client, method) = (client.clone(), method.clone());
                    async move { drop(client.call(method, &path(n), content_type, body(n)).await) }
                })
                .await;
                table.spent(&meter.spent().await, work, OBJECTS, upstream);
            }
        };
    let named = |n: usize| format!("{BASE}/cm-{n}");
    let merge = |_| Bytes::from_static(br#"{"data":{"round":"2"}}"#);
    each("create", create, Method::POST, "application/json", |_| BASE.to_owned(), |n| config_map(&format!("cm-{n}"), 0)).await;
    each("get", get, Method::GET, "application/json", named, |_| Bytes::new()).await;
    each("update", update, Method::PUT, "application/json", named, |n| config_map(&format!("cm-{n}"), 1)).await;
    each("merge patch", patch, Method::PATCH, "application/merge-patch+json", named, merge).await;
    let singles = one_at_a_time(&client).await;
    let meter = Meter::start(pid).await;
    for _ in 0..LISTS {
        drop(client.get(BASE).await);
    }
    table.spent(&meter.spent().await, &format!("list of all {}, consistent", OBJECTS + SINGLE), LISTS, list);
    let meter = watches(kubeconfig, &client, pid).await;
    table.spent(&meter.spent().await, &format!("watch delivery ({EVENTS} updates to {WATCHERS} watchers)"), WATCHERS * EVENTS, delivery);
    Table::latency().took("create, one at a time, synced", singles);
    let sizes = Table::sizes();
    sizes.is("memory (PSS) after the run, 100 watchers still there", &mib(pss_kib(pid)));
    tokio::time::sleep(QUIET).await;
    sizes.is(&format!("the same {} seconds later", QUIET.as_secs()), &mib(pss_kib(pid)));
}

/// Sends events to many watchers, each of which reads every event; returns the meter that started with the first event.
async fn watches(kubeconfig: &str, client: &Client, pid: u32) -> Meter {
    let list: serde_json::Value = serde_json::from_slice(&client.get(&format!("{BASE}?limit=1")).await).expect("a list");
    let path = format!("{BASE}?watch=true&resourceVersion={}", list["metadata"]["resourceVersion"].as_str().expect("a revision"));
    let watching = Client::connect(kubeconfig).await;
    let seen = Arc::new(Semaphore::new(0));
    for _ in 0..WATCHERS {
        let mut body = watching.send(Method::GET, &path, "application/json", Bytes::new()).await.into_body();
        let seen = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Some(Ok(frame)) = body.frame().await {
                let lines = frame.data_ref().map_or(0, |data| data.iter().filter(|&&byte| byte == b'\n').count());
                seen.add_permits(lines);
            }
        });
    }
    let meter = Meter::start(pid).await;
    let writer = client.clone();
    in_flight(EVENTS, AT_ONCE, |n| {
        let client = writer.clone();
        async move { drop(client.call(Method::PUT, &format!("{BASE}/cm-{n}"), "application/json", config_map(&format!("cm-{n}"), 3)).await) }
    })
    .await;
    let deliveries = u32::try_from(WATCHERS * EVENTS).expect("fits");
    drop(seen.acquire_many(deliveries).await.expect("all arrive"));
    meter
}

async fn one_at_a_time(client: &Client) -> Vec<Duration> {
    let mut samples = Vec::with_capacity(SINGLE);
    for n in 0..SINGLE {
        let began = Instant::now();
        drop(client.call(Method::POST, BASE, "application/json", config_map(&format!("single-{n}"), 0)).await);
        samples.push(began.elapsed());
    }
    samples
}
