//! A Pod's status from its worker's record. Pure, and in upstream's words; only [`writer`] sends it.

mod conditions;
mod containers;
mod phase;
pub(crate) mod writer;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{HostIP, Pod, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::container::{self, Role, files, resources};
use crate::machine::Host;
use crate::record::{Clean, ContainerRecord, Failure, PodRecord, restarts};
pub(crate) use conditions::ALL_CONTAINERS_RESTARTING;
use phase::Next;

/// A time as `metav1.Time` holds it: whole seconds.
pub(crate) fn time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// Whether an instance follows one of `spec.containers` that ended.
fn followed(pod: &Pod, pod_record: &PodRecord) -> bool {
    let Some(spec) = &pod.spec else { return false };
    container::all(spec).filter(|(role, _)| *role == Role::Main).any(|(role, container)| {
        let ended = pod_record.container(&container.name).and_then(ContainerRecord::latest_end);
        ended.is_some_and(|ended| restarts(spec, role, container, ended))
    })
}

/// The status of a Pod. Conditions that others own are left out.
pub(crate) fn compute(pod: &Pod, pod_record: &PodRecord, host: Host, now: Timestamp) -> PodStatus {
    let record = pod.status.clone().unwrap_or_default();
    if pod_record.ended_before {
        return record;
    }
    let rejected = pod_record.failure.as_ref().is_some_and(Failure::is_rejection);
    let (init_statuses, statuses) = if rejected { (Vec::new(), Vec::new()) } else { containers::statuses(pod, pod_record, host) };
    let over = pod_record.ends(pod) && !pod_record.anything_runs() && pod_record.clean != Clean::Not;
    let next = match followed(pod, pod_record) {
        _ if over => Next::Nothing,
        true => Next::Instance,
        false => Next::None,
    };
    let phase = match &pod_record.failure {
        Some(_) if rejected || !pod_record.anything_runs() => "Failed",
        _ => phase::phase(pod, &init_statuses, &statuses, next),
    };
    let host_network = files::on_host_network(pod.spec.as_ref());
    let pod_ip = match pod_record.ready_sandbox() {
        Some(sandbox) => Some(sandbox.ip.to_string()),
        None => record.pod_ip,
    };
    let pod_ip = if host_network && !rejected { Some(host.ip.to_string()) } else { pod_ip };
    let conditions = conditions::conditions(pod, pod_record, phase, &init_statuses, &statuses, now);
    // As upstream, the phase does not change to its end while something still runs.
    let (reason, message) = match &pod_record.failure {
        Some(failure) if rejected || !pod_record.anything_runs() => (Some(failure.reason.clone()), Some(failure.message.clone())),
        Some(_) => (record.reason, record.message),
        None => (None, None),
    };
    PodStatus {
        phase: Some(phase.to_owned()),
        reason,
        message,
        conditions: Some(conditions),
        host_ip: Some(host.ip.to_string()),
        host_ips: Some(vec![HostIP { ip: host.ip.to_string() }]),
        pod_ips: pod_ip.clone().map(|ip| vec![PodIP { ip }]),
        pod_ip,
        start_time: Some(time(pod_record.started_at)),
        init_container_statuses: Some(init_statuses).filter(|list| !list.is_empty()),
        container_statuses: Some(statuses).filter(|list| !list.is_empty()),
        ephemeral_container_statuses: Some(containers::ephemeral(pod, pod_record, host)).filter(|list| !list.is_empty()),
        qos_class: Some(resources::qos(pod).to_owned()),
        allocated_resources: if rejected { None } else { resources::total_requests(pod) },
        resources: if rejected { None } else { pod_record.total(pod) },
        observed_generation: pod.metadata.generation,
        ..PodStatus::default()
    }
}
