//! `/metrics`: the agent itself, under the kubelet's names. The use of CPU and memory by containers is on the pages of
//! [`resource_metrics`](super::resource_metrics) and [`cadvisor`](super::cadvisor), as upstream: no cgroup is read here.

use std::sync::Arc;
use std::time::Duration;

use api_metrics::{Families, number};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::{disks, kubelet_families};
use crate::certificates;
use crate::cpu_manager::{CpuManager, Figures};
use crate::node::Node;

/// How long an answer may measure what Pods have on the disk. The rest is measured by the next ones.
const MEASURED_FOR: Duration = Duration::from_millis(500);

/// Prometheus text.
pub(super) async fn metrics(State(node): State<Arc<Node>>) -> Response {
    let entries = node.directory.all();
    let disks = disks::measured(&node, &entries, MEASURED_FOR).await;
    let mut families = Families::default();
    kubelet_families::add_node(&mut families, &node.config.node_name);
    kubelet_families::add_pods(&mut families, &entries);
    node.kubelet_metrics.add_to(&mut families);
    kubelet_families::add_disks(&mut families, &entries, &disks);
    add_cpu_manager(&mut families, node.cpu_manager.as_ref().map(CpuManager::figures).unwrap_or_default());
    node.device_plugins.add_metrics(&mut families);
    let serving_pem = node.config.serving.as_ref().map(|serving| serving.borrow().certificate_pem.clone());
    certificates::add_to(&mut families, node.config.certificates.as_deref(), serving_pem.as_deref(), api_clock::now());
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
