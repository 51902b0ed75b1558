//! `/metrics`: the agent itself, and the CPU and memory of containers under upstream's names.

use std::sync::Arc;
use std::time::Duration;

use api_metrics::{Families, number};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::cpu_manager::{CpuManager, Figures};
use crate::layout::PodName;
use crate::node::Node;
use crate::stats::{self, Usage};

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
    add_cpu_manager(&mut families, node.cpu_manager.as_ref().map(CpuManager::figures).unwrap_or_default());
    node.device_plugins.add_metrics(&mut families);
    api_metrics::add_process(&mut families);
    ([(header::CONTENT_TYPE, api_metrics::TEXT_FORMAT)], families.text()).into_response()
}

/// Upstream's metrics of the CPU manager; all are zero under the policy `none`.
fn add_cpu_manager(families: &mut Families, figures: Figures) {
    let Figures { requests, errors, shared_milli, exclusive } = figures;
    families.counter(
        "kubelet_cpu_manager_pinning_requests_total",
        "The number of cpu core allocations which required pinning.",
        [([], number(requests))],
    );
    families.counter(
        "kubelet_cpu_manager_pinning_errors_total",
        "The number of cpu core allocations which required pinning failed.",
        [([], number(errors))],
    );
    families.gauge(
        "kubelet_cpu_manager_shared_pool_size_millicores",
        "The size of the shared CPU pool for non-guaranteed QoS pods, in millicores.",
        [([], number(shared_milli))],
    );
    families.gauge(
        "kubelet_cpu_manager_exclusive_cpu_allocation_count",
        "The total number of CPUs exclusively allocated to containers running on this node",
        [([], number(exclusive))],
    );
}
