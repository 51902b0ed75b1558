//! `/stats/summary` and `/metrics`: what Pods and the node use now, in upstream's shapes.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use runtimes_contract::Stats;
use serde_json::{Value, json};

use crate::layout::PodName;
use crate::machine::{Memory, disk};
use crate::node::Node;
use crate::stats::container_stats;

/// The kubelet's summary API, its CPU and memory.
pub(super) async fn summary(State(node): State<Arc<Node>>) -> Response {
    let now = Timestamp::now().to_string();
    let usage = |stats: &Stats| {
        (
            json!({"time": now, "usageCoreNanoSeconds": stats.cpu_ns}),
            json!({"time": now, "usageBytes": stats.memory_bytes, "workingSetBytes": stats.working_set_bytes}),
        )
    };
    let mut pods = Vec::new();
    for entry in node.directory.all() {
        let names = PodName::of(&entry.pod);
        let stats = container_stats(&node, &entry).await;
        let sum = stats.iter().fold(Stats::default(), |sum, (_, one)| Stats {
            cpu_ns: sum.cpu_ns + one.cpu_ns,
            memory_bytes: sum.memory_bytes + one.memory_bytes,
            working_set_bytes: sum.working_set_bytes + one.working_set_bytes,
            pids: sum.pids + one.pids,
        });
        let containers: Vec<Value> = stats
            .iter()
            .map(|(name, stats)| {
                let (cpu, memory) = usage(stats);
                json!({"name": name, "cpu": cpu, "memory": memory})
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
    let of_node = json!({"nodeName": node.config.node_name, "memory": memory, "fs": fs});
    Json(json!({"node": of_node, "pods": pods})).into_response()
}

/// Prometheus text: upstream's resource metrics of containers.
pub(super) async fn metrics(State(node): State<Arc<Node>>) -> Response {
    let mut cpu = String::new();
    let mut memory = String::new();
    let mut running = 0;
    for entry in node.directory.all() {
        let names = PodName::of(&entry.pod);
        for (container, stats) in container_stats(&node, &entry).await {
            running += 1;
            let labels = format!("{{container=\"{container}\",namespace=\"{}\",pod=\"{}\"}}", names.namespace, names.name);
            let seconds = std::time::Duration::from_nanos(stats.cpu_ns).as_secs_f64();
            let written = writeln!(cpu, "container_cpu_usage_seconds_total{labels} {seconds}")
                .and_then(|()| writeln!(memory, "container_memory_working_set_bytes{labels} {}", stats.working_set_bytes));
            if written.is_err() {
                tracing::debug!("a String takes all that is written to it");
            }
        }
    }
    let text = format!(
        "# HELP kubelet_running_containers Number of containers currently running\n# TYPE kubelet_running_containers gauge\n\
         kubelet_running_containers{{container_state=\"running\"}} {running}\n\
         # HELP container_cpu_usage_seconds_total Cumulative cpu time consumed by the container in core-seconds\n\
         # TYPE container_cpu_usage_seconds_total counter\n{cpu}\
         # HELP container_memory_working_set_bytes Current working set of the container in bytes\n\
         # TYPE container_memory_working_set_bytes gauge\n{memory}{}",
        api_tasks::metrics()
    );
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
