//! A Pod's status from what its worker knows. Pure, and in upstream's words; [`writer`] alone sends it.

mod conditions;
mod containers;
mod phase;
pub(crate) mod writer;

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{HostIP, Pod, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::container::{Role, files, resources};
use crate::record::{Clean, Facts, Failure};
use phase::Next;

/// A time as `metav1.Time` holds it: whole seconds.
pub(crate) fn time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// The status of a Pod. Conditions that others own are left out.
pub(crate) fn compute(pod: &Pod, facts: &Facts, host_ip: IpAddr, now: Timestamp) -> PodStatus {
    let known = pod.status.clone().unwrap_or_default();
    if facts.ended_before {
        return known;
    }
    let rejected = facts.failure.as_ref().is_some_and(Failure::is_rejection);
    let (init_statuses, statuses) = if rejected { (Vec::new(), Vec::new()) } else { containers::statuses(pod, facts) };
    let over = facts.ends(pod) && !facts.anything_runs() && facts.clean != Clean::Not;
    let next = match facts.containers.values().any(|known| known.role == Role::Main && known.is_replaced()) {
        _ if over => Next::Nothing,
        true => Next::Instance,
        false => Next::ByPolicy,
    };
    let phase = match &facts.failure {
        Some(_) if rejected || !facts.anything_runs() => "Failed",
        _ => phase::phase(pod, &init_statuses, &statuses, next),
    };
    let host_network = files::on_host_network(pod.spec.as_ref());
    let pod_ip = match facts.ground() {
        Some(ground) => Some(ground.ip.to_string()),
        None => known.pod_ip,
    };
    let pod_ip = if host_network && !rejected { Some(host_ip.to_string()) } else { pod_ip };
    let conditions = conditions::conditions(pod, facts, phase, &init_statuses, &statuses, now);
    // As upstream, the end is told when there is one: until nothing runs any more all stays as it was.
    let (reason, message) = match &facts.failure {
        Some(failure) if rejected || !facts.anything_runs() => (Some(failure.reason.clone()), Some(failure.message.clone())),
        Some(_) => (known.reason, known.message),
        None => (None, None),
    };
    PodStatus {
        phase: Some(phase.to_owned()),
        reason,
        message,
        conditions: Some(conditions),
        host_ip: Some(host_ip.to_string()),
        host_ips: Some(vec![HostIP { ip: host_ip.to_string() }]),
        pod_ips: pod_ip.clone().map(|ip| vec![PodIP { ip }]),
        pod_ip,
        start_time: Some(time(facts.started_at)),
        init_container_statuses: Some(init_statuses).filter(|list| !list.is_empty()),
        container_statuses: Some(statuses).filter(|list| !list.is_empty()),
        ephemeral_container_statuses: Some(containers::ephemeral(pod)).filter(|list| !list.is_empty()),
        qos_class: Some(resources::qos(pod).to_owned()),
        observed_generation: pod.metadata.generation,
        ..PodStatus::default()
    }
}
