//! `/stats/summary` and `/metrics`: what Pods and the node use now, in upstream's shapes.

use std::sync::Arc;
use std::time::Duration;

use api_metrics::{Families, number};
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use runtimes_contract::Stats;
use serde_json::{Value, json};

use crate::layout::PodName;
use crate::machine::{self, Memory, disk};
use crate::node::Node;
use crate::stats::{self, Usage};
use crate::status::time;

/// The kubelet's summary API, its CPU and memory.
pub(super) async fn summary(State(node): State<Arc<Node>>) -> Response {
    let now = api_clock::now().to_string();
    let usage = |stats: &Stats| {
        (
            json!({"time": now, "usageCoreNanoSeconds": stats.cpu_ns}),
            json!({"time": now, "usageBytes": stats.memory_bytes, "workingSetBytes": stats.working_set_bytes}),
        )
    };
    let mut pods = Vec::new();
    for entry in node.directory.all() {
        let names = PodName::of(&entry.pod);
        let running = stats::running(&node, &entry).await;
        let sum = stats::sum(&running);
        let containers: Vec<Value> = running
            .iter()
            .map(|Usage { container, started_at, stats, .. }| {
                let (cpu, memory) = usage(stats);
                json!({"name": container, "startTime": time(*started_at), "cpu": cpu, "memory": memory})
            })
            .collect();
        let (cpu, memory) = usage(&sum);
        let reference = json!({"name": names.name, "namespace": names.namespace, "uid": names.uid});
        let processes = json!({"process_count": sum.pids});
        pods.push(json!({"podRef": reference, "cpu": cpu, "memory": memory, "containers": containers, "process_stats": processes}));
    }
    let Memory { total, available } = Memory::read();
    let (capacity, free) = disk(&node.config.data_dir);
    let memory = json!({"time": now, "availableBytes": available, "usageBytes": total.saturating_sub(available), "workingSetBytes": total.saturating_sub(available)});
    let fs = json!({"time": now, "capacityBytes": capacity, "availableBytes": free, "usedBytes": capacity.saturating_sub(free)});
    let cpu =
        json!({"time": now, "usageCoreNanoSeconds": machine::cpu_time().map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))});
    let of_node = json!({"nodeName": node.config.node_name, "cpu": cpu, "memory": memory, "fs": fs});
    Json(json!({"node": of_node, "pods": pods})).into_response()
}

/// Prometheus text: upstream's resource metrics of containers.
pub(super) async fn metrics(State(node): State<Arc<Node>>) -> Response {
    let mut containers = Vec::new();
    for entry in node.directory.all() {
        let names = PodName::of(&entry.pod);
        for Usage { container, stats, .. } in stats::running(&node, &entry).await {
            let labels = [("container", container), ("namespace", names.namespace.clone()), ("pod", names.name.clone())];
            containers.push((labels, stats));
        }
    }
    let mut families = Families::default();
    let running = [([("container_state", "running".to_owned())], number(containers.len() as u64))];
    families.gauge("kubelet_running_containers", "Number of containers currently running", running);
    families.counter(
        "container_cpu_usage_seconds_total",
        "Cumulative cpu time consumed by the container in core-seconds",
        containers.iter().map(|(labels, stats)| (labels.clone(), Duration::from_nanos(stats.cpu_ns).as_secs_f64())),
    );
    families.gauge(
        "container_memory_working_set_bytes",
        "Current working set of the container in bytes",
        containers.iter().map(|(labels, stats)| (labels.clone(), number(stats.working_set_bytes))),
    );
    api_metrics::add_process(&mut families);
    ([(header::CONTENT_TYPE, api_metrics::TEXT_FORMAT)], families.text()).into_response()
}
