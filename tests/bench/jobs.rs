//! A Job of many short WASM Pods on one real node. The node's start rate is the bound: 240 of the 500 Pods that the Job wants at once fit on
//! the node, which has 254 addresses.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use crate::load::Client;
use crate::process::{Meter, pss_kib};
use crate::report::{Table, mib};

/// The cluster: its node takes as many Pods as it has addresses for, with a few to spare.
pub const CLUSTER: &[&str] = &["up", "--max-pods=240"];
const COMPLETIONS: usize = 10_000;
const PARALLELISM: usize = 500;
const LIMIT: Duration = Duration::from_secs(1_200);
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

pub async fn run(kubeconfig: &str, pid: u32) {
    let client = Client::connect(kubeconfig).await;
    // The first Pod compiles the guest.
    complete(&client, "first", 1, 1).await;
    let before = pss_kib(pid);
    let meter = Meter::start(pid).await;
    complete(&client, "many", COMPLETIONS, PARALLELISM).await;
    let spent = meter.spent().await;
    Table::work().spent(&spent, &format!("completion of a Job, {PARALLELISM} WASM Pods at once, one node"), COMPLETIONS, None);
    let grown = pss_kib(pid).saturating_sub(before);
    Table::sizes().is(&format!("{COMPLETIONS} ended Pods and their records, the one process"), &mib(grown));
}

/// Runs a Job to its end.
async fn complete(client: &Client, name: &str, completions: usize, parallelism: usize) {
    let container = json!({"name": "c", "image": "samples/job:latest", "imagePullPolicy": "IfNotPresent", "args": ["0"]});
    let pod =
        json!({"restartPolicy": "Never", "automountServiceAccountToken": false, "runtimeClassName": "wasmtime", "containers": [container]});
    let spec = json!({"completions": completions, "parallelism": parallelism, "template": {"spec": pod}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec});
    drop(client.call(Method::POST, JOBS, "application/json", Bytes::from(job.to_string())).await);
    let path = format!("{JOBS}/{name}");
    let complete = async {
        loop {
            let job: Value = serde_json::from_slice(&client.get(&path).await).expect("JSON");
            assert!(job["status"]["failed"].is_null(), "a Pod failed: {}", job["status"]);
            if job["status"]["succeeded"].as_u64() == Some(completions as u64) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LIMIT, complete).await.expect("the Job completes in time");
}
