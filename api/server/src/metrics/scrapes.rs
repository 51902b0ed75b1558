//! Readings of the nodes' own metrics, under the metrics server's names.

use api_metrics::{Counters, Families, number};
use api_usage::Readings;

/// Counts requests to nodes.
pub(crate) struct Scrapes(Counters<1>);

impl Default for Scrapes {
    fn default() -> Self {
        Self(Counters::new("metrics_server_kubelet_request_total", "Number of requests sent to Kubelet API", ["success"]))
    }
}

impl Scrapes {
    /// Counts one request.
    pub(crate) fn count(&self, has_succeeded: bool) {
        self.0.count([if has_succeeded { "true" } else { "false" }]);
    }

    pub(super) fn add_to(&self, families: &mut Families, readings: &Readings) {
        self.0.add_to(families);
        let (nodes, containers) = readings.measured();
        let points = [("container", containers), ("node", nodes)];
        families.gauge(
            "metrics_server_storage_points",
            "Number of metrics points stored.",
            points.into_iter().map(|(kind, count)| ([("type", kind.to_owned())], number(count as u64))),
        );
    }
}
