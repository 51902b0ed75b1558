//! What a Pod is doing: its phase, its conditions with their times, its reason and its quality of service.

use api_model::k8s_openapi::api::core::v1::{Pod, PodCondition};

use crate::family::{Family, gauge};
use crate::read::{list, or_empty, text};
use crate::series::Series;

/// The order is that of kube-state-metrics.
const PHASES: [&str; 5] = ["Pending", "Succeeded", "Failed", "Unknown", "Running"];
const QOS_CLASSES: [&str; 3] = ["BestEffort", "Burstable", "Guaranteed"];
/// The reasons that have a series for every Pod.
const REASONS: [&str; 5] = ["Evicted", "NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError"];

pub(super) const FAMILIES: &[Family<Pod>] = &[
    gauge("kube_pod_status_phase", "1 for the phase of the Pod, 0 for the other phases.", |pod, series| {
        let status = or_empty(&pod.status);
        if let Some(phase) = &status.phase {
            series.states("phase", &PHASES, phase);
        }
    }),
    gauge("kube_pod_status_qos_class", "1 for the quality of service class of the Pod, 0 for the other classes.", |pod, series| {
        let status = or_empty(&pod.status);
        if let Some(class) = &status.qos_class {
            series.states("qos_class", &QOS_CLASSES, class);
        }
    }),
    gauge("kube_pod_status_ready", "1 for the status of the Pod's condition Ready.", |pod, series| {
        condition(pod, "Ready", series);
    }),
    gauge("kube_pod_status_ready_time", "Since when the Pod is ready, in Unix seconds.", |pod, series| {
        transition(pod, "Ready", "True", series);
    }),
    gauge("kube_pod_status_initialized_time", "Since when the init containers are done, in Unix seconds.", |pod, series| {
        transition(pod, "Initialized", "True", series);
    }),
    gauge("kube_pod_status_container_ready_time", "Since when all containers are ready, in Unix seconds.", |pod, series| {
        transition(pod, "ContainersReady", "True", series);
    }),
    gauge("kube_pod_status_reason", "1 if the Pod, a condition or a container that ended has the reason.", reason),
    gauge("kube_pod_status_scheduled", "1 for the status of the Pod's condition PodScheduled.", |pod, series| {
        condition(pod, "PodScheduled", series);
    }),
    gauge("kube_pod_status_scheduled_time", "Since when the Pod has a node, in Unix seconds.", |pod, series| {
        transition(pod, "PodScheduled", "True", series);
    }),
    gauge("kube_pod_status_unschedulable", "1 if the scheduler found no node for the Pod.", |pod, series| {
        for _ in conditions(pod, "PodScheduled").filter(|condition| condition.status == "False") {
            series.value(1.0);
        }
    }),
    gauge("kube_pod_status_unscheduled_time", "Since when the scheduler finds no node for the Pod, in Unix seconds.", |pod, series| {
        transition(pod, "PodScheduled", "False", series);
    }),
];

fn conditions<'a>(pod: &'a Pod, kind: &'a str) -> impl Iterator<Item = &'a PodCondition> {
    let all = pod.status.iter().flat_map(|status| list(&status.conditions));
    all.filter(move |condition| condition.type_ == kind)
}

fn condition(pod: &Pod, kind: &str, series: &mut Series<'_>) {
    for condition in conditions(pod, kind) {
        series.condition(&[], "condition", &condition.status);
    }
}

/// The time of the last transition of a condition that has this status.
fn transition(pod: &Pod, kind: &str, status: &str, series: &mut Series<'_>) {
    for condition in conditions(pod, kind).filter(|condition| condition.status == status) {
        series.time(condition.last_transition_time.as_ref());
    }
}

fn reason(pod: &Pod, series: &mut Series<'_>) {
    let status = or_empty(&pod.status);
    let ended = list(&status.container_statuses).iter().filter_map(|status| status.state.as_ref()?.terminated.as_ref());
    let mut reasons = vec![text(&status.reason)];
    reasons.extend(list(&status.conditions).iter().map(|condition| text(&condition.reason)));
    reasons.extend(ended.map(|terminated| text(&terminated.reason)));
    for reason in REASONS {
        series.sample(&[("reason", reason)], f64::from(u8::from(reasons.contains(&reason))));
    }
}
