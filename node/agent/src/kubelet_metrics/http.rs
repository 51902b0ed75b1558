//! The requests to the node's server, by method and path. Only the first segments of the routes are paths, as upstream.

use std::sync::Arc;

use api_metrics::{Counters, Families, Gauges, Histograms};
use tokio::time::Instant;

use super::DEFAULT_BUCKETS;

/// Upstream's methods; every other one is `other`.
const METHODS: [&str; 8] = ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT", "TRACE"];
/// The paths by their first segments, those of metrics by their first two; every other one is `other`.
const PATHS: [&str; 13] = [
    "attach",
    "containerLogs",
    "exec",
    "healthz",
    "livez",
    "metrics",
    "metrics/cadvisor",
    "metrics/probes",
    "metrics/resource",
    "pods",
    "portForward",
    "readyz",
    "stats",
];
/// The paths of requests that last as long as their client wants.
const LONG_RUNNING: [&str; 3] = ["attach", "exec", "portForward"];
const OTHER: &str = "other";
/// The server with authorization is the only one that counts.
const SERVER_TYPE: &str = "readwrite";

/// The labels of a request.
type RequestLabels = [&'static str; 4];

/// See the module.
pub(crate) struct HttpMetrics {
    requests: Counters<4>,
    durations: Histograms<4>,
    inflight: Gauges<4>,
}

impl Default for HttpMetrics {
    fn default() -> Self {
        let labels = ["method", "path", "server_type", "long_running"];
        Self {
            requests: Counters::new("kubelet_http_requests_total", "Number of requests to the node's server.", labels),
            durations: Histograms::new(
                "kubelet_http_requests_duration_seconds",
                "Duration in seconds of requests to the node's server.",
                labels,
                &DEFAULT_BUCKETS,
            ),
            inflight: Gauges::new("kubelet_http_inflight_requests", "Number of requests that the node's server answers now.", labels),
        }
    }
}

impl HttpMetrics {
    pub(super) fn add_to(&self, families: &mut Families) {
        self.requests.add_to(families);
        self.durations.add_to(families);
        self.inflight.add_to(families);
    }
}

/// A request that is being answered. It ends when this is dropped.
pub(crate) struct InflightRequest {
    metrics: Arc<super::KubeletMetrics>,
    labels: RequestLabels,
    began: Instant,
}

impl InflightRequest {
    /// A request has come.
    pub(crate) fn begin(metrics: Arc<super::KubeletMetrics>, method: &str, path: &str) -> Self {
        let labels = labels(method, path);
        metrics.http.requests.count(labels);
        metrics.http.inflight.increment(labels);
        Self { metrics, labels, began: Instant::now() }
    }
}

impl Drop for InflightRequest {
    fn drop(&mut self) {
        self.metrics.http.inflight.decrement(self.labels);
        self.metrics.http.durations.observe(self.labels, self.began.elapsed().as_secs_f64());
    }
}

fn labels(method: &str, path: &str) -> RequestLabels {
    let of = |all: &[&'static str], value: &str| all.iter().copied().find(|one| *one == value).unwrap_or(OTHER);
    let path = of(&PATHS, root(path));
    [of(&METHODS, method), path, SERVER_TYPE, if LONG_RUNNING.contains(&path) { "true" } else { "false" }]
}

/// The first segment of a path, or the first two of `/metrics/…`.
fn root(path: &str) -> &str {
    let path = path.strip_prefix('/').unwrap_or(path);
    let segments = if path.starts_with("metrics/") { 2 } else { 1 };
    let end = path.match_indices('/').nth(segments - 1).map_or(path.len(), |(at, _)| at);
    path.get(..end).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_a_fixed_set_of_values() {
        for (method, path, wanted) in [
            ("GET", "/metrics", ["GET", "metrics", "readwrite", "false"]),
            ("GET", "/metrics/cadvisor", ["GET", "metrics/cadvisor", "readwrite", "false"]),
            ("GET", "/metrics/probes/x/y", ["GET", "metrics/probes", "readwrite", "false"]),
            ("GET", "/metrics/", ["GET", "other", "readwrite", "false"]),
            ("POST", "/exec/ns/pod/c", ["POST", "exec", "readwrite", "true"]),
            ("GET", "/containerLogs/ns/pod/c", ["GET", "containerLogs", "readwrite", "false"]),
            ("GET", "/stats/summary", ["GET", "stats", "readwrite", "false"]),
            ("GET", "/healthz/syncloop", ["GET", "healthz", "readwrite", "false"]),
            ("BREW", "/etc/passwd", ["other", "other", "readwrite", "false"]),
            ("GET", "", ["GET", "other", "readwrite", "false"]),
        ] {
            assert_eq!(labels(method, path), wanted, "{method} {path}");
        }
    }
}
