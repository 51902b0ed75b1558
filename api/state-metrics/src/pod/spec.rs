//! What is wanted of a Pod: restart policy, scheduler, service account, runtime class, overhead, tolerations and claims.

use std::collections::HashSet;

use api_model::k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, Pod, PodSpec};

use crate::family::{Family, gauge};
use crate::quantity::{amount, whole};
use crate::read::{list, or_empty, text};
use crate::series::Series;

pub(super) const FAMILIES: &[Family<Pod>] = &[
    gauge("kube_pod_restart_policy", "The restart policy of the Pod.", |pod, series| {
        series.info(&[("type", text(&or_empty(&pod.spec).restart_policy))]);
    }),
    gauge("kube_pod_scheduler", "The name of the scheduler that the Pod asks for.", |pod, series| {
        series.info(&[("name", text(&or_empty(&pod.spec).scheduler_name))]);
    }),
    gauge("kube_pod_service_account", "The ServiceAccount that the Pod runs as.", |pod, series| {
        series.info(&[("service_account", text(&or_empty(&pod.spec).service_account_name))]);
    }),
    gauge("kube_pod_runtimeclass_name_info", "The RuntimeClass of the Pod, if it names one.", |pod, series| {
        if let Some(name) = &or_empty(&pod.spec).runtime_class_name {
            series.info(&[("runtimeclass_name", name)]);
        }
    }),
    gauge("kube_pod_overhead_cpu_cores", "CPU cores that the Pod needs besides its containers.", |pod, series| {
        if let Some(cores) = overhead(pod, "cpu").and_then(amount) {
            series.value(cores);
        }
    }),
    gauge("kube_pod_overhead_memory_bytes", "Bytes of memory that the Pod needs besides its containers.", |pod, series| {
        if let Some(bytes) = overhead(pod, "memory").and_then(whole) {
            series.value(bytes);
        }
    }),
    gauge("kube_pod_tolerations", "A toleration of the Pod.", tolerations),
    gauge("kube_pod_spec_volumes_persistentvolumeclaims_info", "A volume of the Pod that is a claim.", |pod, series| {
        for (volume, claim) in claims(pod) {
            series.info(&[("volume", volume), ("persistentvolumeclaim", &claim.claim_name)]);
        }
    }),
    gauge("kube_pod_spec_volumes_persistentvolumeclaims_readonly", "Whether the Pod mounts the claim read-only.", |pod, series| {
        for (volume, claim) in claims(pod) {
            let read_only = f64::from(u8::from(claim.read_only == Some(true)));
            series.sample(&[("volume", volume), ("persistentvolumeclaim", &claim.claim_name)], read_only);
        }
    }),
];

type Quantity = api_model::k8s_openapi::apimachinery::pkg::api::resource::Quantity;

fn overhead<'a>(pod: &'a Pod, resource: &str) -> Option<&'a Quantity> {
    pod.spec.as_ref()?.overhead.as_ref()?.get(resource)
}

/// One sample for each toleration. Equal ones would be the same series, so they are written once.
fn tolerations(pod: &Pod, series: &mut Series<'_>) {
    let all = pod.spec.as_ref().map_or(&[][..], |spec: &PodSpec| list(&spec.tolerations));
    let mut written = HashSet::new();
    for toleration in all {
        let seconds = toleration.toleration_seconds.map(|seconds| seconds.to_string());
        let texts = [&toleration.key, &toleration.operator, &toleration.value, &toleration.effect].map(text);
        if written.insert((texts, toleration.toleration_seconds)) {
            let [key, operator, value, effect] = texts;
            let seconds = ("toleration_seconds", text(&seconds));
            series.info(&[("key", key), ("operator", operator), ("value", value), ("effect", effect), seconds]);
        }
    }
}

/// The volumes that are claims, with their names.
fn claims(pod: &Pod) -> impl Iterator<Item = (&str, &PersistentVolumeClaimVolumeSource)> {
    let volumes = pod.spec.iter().flat_map(|spec| list(&spec.volumes));
    volumes.filter_map(|volume| Some((volume.name.as_str(), volume.persistent_volume_claim.as_ref()?)))
}
