//! Resizes of Pods in place: what was requested of containers, what the node can never give, and how long the others took.

use std::time::Duration;

use api_metrics::{Counters, Families, Histograms};
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::container;

/// Upstream's buckets, in ms.
const BUCKETS: [f64; 14] = [10.0, 50.0, 100.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 3e4, 6e4, 1.2e5, 3e5, 6e5];

/// See the module.
pub(crate) struct ResizeMetrics {
    requested: Counters<3>,
    infeasible: Counters<1>,
    durations: Histograms<1>,
}

impl Default for ResizeMetrics {
    fn default() -> Self {
        Self {
            requested: Counters::new(
                "kubelet_container_requested_resizes_total",
                "Number of resizes that were requested, by container and resource.",
                ["resource", "requirement", "operation"],
            ),
            infeasible: Counters::new(
                "kubelet_pod_infeasible_resizes_total",
                "Number of resizes that the node can never carry out.",
                ["reason_detail"],
            ),
            durations: Histograms::new(
                "kubelet_pod_resize_duration_milliseconds",
                "Duration in milliseconds of setting the limits of a Pod's containers.",
                ["success"],
                &BUCKETS,
            ),
        }
    }
}

impl ResizeMetrics {
    /// A Pod has changed: counts what it requests now and did not before.
    pub(crate) fn requested(&self, before: &Pod, after: &Pod) {
        for (_, container) in after.spec.iter().flat_map(container::all) {
            let Some((_, old)) = container::find(before, &container.name) else { continue };
            if old.resources != container.resources {
                self.add(old.resources.as_ref(), container.resources.as_ref());
            }
        }
    }

    fn add(&self, before: Option<&ResourceRequirements>, after: Option<&ResourceRequirements>) {
        for resource in ["cpu", "memory"] {
            for requirement in ["requests", "limits"] {
                let [before, after] = [before, after].map(|resources| amount(resources, requirement, resource));
                if let Some(operation) = operation(before, after) {
                    self.requested.count([resource, requirement, operation]);
                }
            }
        }
    }

    /// The node can never give what a Pod requests.
    pub(crate) fn infeasible(&self, detail: &'static str) {
        self.infeasible.count([detail]);
    }

    /// The limits of a Pod's containers were set, or not all of them.
    pub(crate) fn carried_out(&self, took: Duration, is_ok: bool) {
        self.durations.observe([if is_ok { "true" } else { "false" }], took.as_secs_f64() * 1_000.0);
    }

    pub(super) fn add_to(&self, families: &mut Families) {
        self.requested.add_to(families);
        self.infeasible.add_to(families);
        self.durations.add_to(families);
    }
}

/// Thousandths of a resource; 0 without the requirement.
fn amount(resources: Option<&ResourceRequirements>, requirement: &str, resource: &str) -> i128 {
    let list =
        resources.and_then(|resources| if requirement == "limits" { resources.limits.as_ref() } else { resources.requests.as_ref() });
    let quantity: Option<&Quantity> = list.and_then(|list| list.get(resource));
    quantity.and_then(|quantity| api_model::quantity::milli(&quantity.0).ok()).unwrap_or(0)
}

/// Upstream's label for a change.
fn operation(before: i128, after: i128) -> Option<&'static str> {
    match (before, after) {
        _ if before == after => None,
        (0, _) => Some("add"),
        (_, 0) => Some("remove"),
        _ if after > before => Some("increase"),
        _ => Some("decrease"),
    }
}
