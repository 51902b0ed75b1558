//! The families of a Pod's containers.

use api_model::k8s_openapi::api::core::v1::Pod;

use super::containers::Containers;
use crate::family::{Family, counter, gauge};
use crate::read::text;
use crate::series::Series;

pub(super) const FAMILIES: &[Family<Pod>] = &[
    gauge("kube_pod_container_info", "A container with its image and its id.", info),
    gauge("kube_pod_container_resource_requests", "How much of a resource the container requests.", |pod, series| {
        Containers::main(pod).resources(|resources| &resources.requests, series);
    }),
    gauge("kube_pod_container_resource_limits", "How much of a resource the container may use.", |pod, series| {
        Containers::main(pod).resources(|resources| &resources.limits, series);
    }),
    gauge("kube_pod_container_state_started", "When the container started, in Unix seconds.", started),
    gauge("kube_pod_container_status_ready", "Whether the container is ready.", |pod, series| {
        Containers::main(pod).ready(series);
    }),
    counter("kube_pod_container_status_restarts_total", "How often the container was restarted.", |pod, series| {
        Containers::main(pod).restarts(series);
    }),
    gauge("kube_pod_container_status_running", "Whether the container runs.", |pod, series| {
        Containers::main(pod).in_state(|state| state.running.is_some(), series);
    }),
    gauge("kube_pod_container_status_waiting", "Whether the container waits to run.", |pod, series| {
        Containers::main(pod).in_state(|state| state.waiting.is_some(), series);
    }),
    gauge("kube_pod_container_status_waiting_reason", "Why the container waits to run.", |pod, series| {
        Containers::main(pod).waiting_reason(series);
    }),
    gauge("kube_pod_container_status_terminated", "Whether the container has ended.", |pod, series| {
        Containers::main(pod).in_state(|state| state.terminated.is_some(), series);
    }),
    gauge("kube_pod_container_status_terminated_reason", "Why the container has ended.", |pod, series| {
        Containers::main(pod).terminated_reason(series);
    }),
    gauge("kube_pod_container_status_last_terminated_reason", "Why the previous instance of the container ended.", |pod, series| {
        Containers::main(pod).last_terminated_reason(series);
    }),
    gauge("kube_pod_container_status_last_terminated_exitcode", "Exit code of the container's previous instance.", |pod, series| {
        for (name, terminated) in Containers::main(pod).last_terminated() {
            series.sample(&[("container", name)], f64::from(terminated.exit_code));
        }
    }),
    gauge(
        "kube_pod_container_status_last_terminated_timestamp",
        "When the previous instance of the container ended, in Unix seconds.",
        |pod, series| {
            for (name, terminated) in Containers::main(pod).last_terminated() {
                if let Some(time) = &terminated.finished_at {
                    series.sample(&[("container", name)], time.0.as_second() as f64);
                }
            }
        },
    ),
];

fn info(pod: &Pod, series: &mut Series<'_>) {
    for (spec, status) in Containers::main(pod).with_status() {
        series.info(&[
            ("container", &status.name),
            ("image_spec", text(&spec.image)),
            ("image", &status.image),
            ("image_id", &status.image_id),
            ("container_id", text(&status.container_id)),
        ]);
    }
}

/// When each container that runs or has ended was started.
fn started(pod: &Pod, series: &mut Series<'_>) {
    for status in Containers::main(pod).statuses {
        let Some(state) = &status.state else { continue };
        let running = state.running.as_ref().and_then(|running| running.started_at.as_ref());
        let terminated = state.terminated.as_ref().and_then(|terminated| terminated.started_at.as_ref());
        if let Some(time) = running.or(terminated) {
            series.sample(&[("container", &status.name)], time.0.as_second() as f64);
        }
    }
}
