//! The families of a Pod's init containers, sidecars included.

use api_model::k8s_openapi::api::core::v1::Pod;

use super::containers::Containers;
use crate::family::{Family, counter, gauge};
use crate::read::text;
use crate::series::Series;

pub(super) const FAMILIES: &[Family<Pod>] = &[
    gauge("kube_pod_init_container_info", "An init container with its image, its id and its restart policy.", info),
    gauge("kube_pod_init_container_resource_requests", "How much of a resource the init container requests.", |pod, series| {
        Containers::init(pod).resources(|resources| &resources.requests, series);
    }),
    gauge("kube_pod_init_container_resource_limits", "How much of a resource the init container may use.", |pod, series| {
        Containers::init(pod).resources(|resources| &resources.limits, series);
    }),
    gauge("kube_pod_init_container_status_ready", "Whether the init container is done, or ready if it is a sidecar.", |pod, series| {
        Containers::init(pod).ready(series);
    }),
    counter("kube_pod_init_container_status_restarts_total", "How often the init container was restarted.", |pod, series| {
        Containers::init(pod).restarts(series);
    }),
    gauge("kube_pod_init_container_status_running", "Whether the init container runs.", |pod, series| {
        Containers::init(pod).in_state(|state| state.running.is_some(), series);
    }),
    gauge("kube_pod_init_container_status_waiting", "Whether the init container waits to run.", |pod, series| {
        Containers::init(pod).in_state(|state| state.waiting.is_some(), series);
    }),
    gauge("kube_pod_init_container_status_waiting_reason", "Why the init container waits to run.", |pod, series| {
        Containers::init(pod).waiting_reason(series);
    }),
    gauge("kube_pod_init_container_status_terminated", "Whether the init container has ended.", |pod, series| {
        Containers::init(pod).in_state(|state| state.terminated.is_some(), series);
    }),
    gauge("kube_pod_init_container_status_terminated_reason", "Why the init container has ended.", |pod, series| {
        Containers::init(pod).terminated_reason(series);
    }),
    gauge(
        "kube_pod_init_container_status_last_terminated_reason",
        "Why the previous instance of the init container ended.",
        |pod, series| Containers::init(pod).last_terminated_reason(series),
    ),
];

fn info(pod: &Pod, series: &mut Series<'_>) {
    for (spec, status) in Containers::init(pod).with_status() {
        series.info(&[
            ("container", &status.name),
            ("image_spec", text(&spec.image)),
            ("image", &status.image),
            ("image_id", &status.image_id),
            ("container_id", text(&status.container_id)),
            ("restart_policy", text(&spec.restart_policy)),
        ]);
    }
}
