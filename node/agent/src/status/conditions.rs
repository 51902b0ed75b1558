//! The conditions that the node owns, in upstream's words: `PodReadyToStartContainers`, `Initialized`, `ContainersReady`,
//! `Ready`, `PodScheduled`; those of a resize. Pure.

use api_model::pod_resize::{IN_PROGRESS, PENDING};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodSpec};

use super::time;
use crate::container::{self, Role};
use crate::reason::Reason;
use crate::record::{Failure, PodRecord, RESTARTING_ALL, Resize, may_restart_all};
use crate::resize::{Pending, reported_condition};

/// Conditions that exist only while they hold.
pub(super) const RESIZE: [&str; 2] = [PENDING, IN_PROGRESS];
/// Whether the containers are being ended so that the Pod begins again.
pub(crate) const ALL_CONTAINERS_RESTARTING: &str = "AllContainersRestarting";

/// A condition's verdict: true, or not and why.
type Verdict = Result<Option<&'static str>, Reason>;

pub(super) fn conditions(
    pod: &Pod,
    pod_record: &PodRecord,
    phase: &str,
    init: &[ContainerStatus],
    main: &[ContainerStatus],
    now: Timestamp,
) -> Vec<PodCondition> {
    let rejected = pod_record.failure.as_ref().is_some_and(Failure::is_rejection);
    let initialized = initialized(pod, phase, init, main, rejected);
    let containers_ready = containers_ready(pod, phase, init, main);
    let ready = containers_ready.clone().and_then(|_| gates(pod));
    let sandboxed = if pod_record.ready_sandbox().is_some() { Ok(None) } else { Err(Reason::new("", "")) };
    let mut all = vec![
        condition(pod, "PodReadyToStartContainers", sandboxed, now),
        condition(pod, "Initialized", initialized, now),
        condition(pod, "Ready", ready, now),
        condition(pod, "ContainersReady", containers_ready, now),
        condition(pod, "PodScheduled", Ok(None), now),
    ];
    // As upstream, with the end and not before it.
    let disruption = pod_record.failure.as_ref().filter(|failure| failure.is_disruption());
    if let Some(failure) = disruption.filter(|_| !pod_record.anything_runs()) {
        all.push(stated(pod, "DisruptionTarget", "True", "TerminationByKubelet", failure.message.clone(), now));
    }
    if let Some(spec) = pod.spec.as_ref().filter(|spec| may_restart_all(spec)) {
        all.push(condition_of_restart(pod, spec, pod_record, phase, now));
    }
    if let Some(Pending { reason, message }) = &pod_record.pending {
        all.push(stated(pod, PENDING, "True", reason, message.clone(), now));
    }
    if pod_record.lags(pod) && !pod_record.ends(pod) {
        let fault = if let Resize::Due { fault, .. } = &pod_record.resize { fault.clone() } else { None };
        all.push(stated(pod, IN_PROGRESS, "True", if fault.is_some() { "Error" } else { "" }, fault.unwrap_or_default(), now));
    }
    all
}

/// Whether all containers are being ended, so that the Pod begins again.
fn condition_of_restart(pod: &Pod, spec: &PodSpec, pod_record: &PodRecord, phase: &str, now: Timestamp) -> PodCondition {
    let (status, reason, message) = match phase {
        "Succeeded" => ("False", "PodCompleted", ""),
        "Failed" => ("False", "PodFailed", ""),
        _ if pod_record.restarts_all(spec) => ("True", "RestartAllContainersStarted", "container exited with restart policy rule"),
        _ => ("False", "", ""),
    };
    stated(pod, ALL_CONTAINERS_RESTARTING, status, reason, message.to_owned(), now)
}

fn condition(pod: &Pod, name: &str, verdict: Verdict, now: Timestamp) -> PodCondition {
    let (status, reason, message) = match verdict {
        Ok(reason) => ("True", reason.unwrap_or_default(), String::new()),
        Err(Reason { reason, message }) => ("False", reason, message),
    };
    stated(pod, name, status, reason, message, now)
}

fn stated(pod: &Pod, name: &str, status: &str, reason: &str, message: String, now: Timestamp) -> PodCondition {
    let same = reported_condition(pod, name).filter(|old| old.status == status).and_then(|old| old.last_transition_time.clone());
    PodCondition {
        type_: name.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()).filter(|reason| !reason.is_empty()),
        message: Some(message).filter(|message| !message.is_empty()),
        last_transition_time: same.or_else(|| Some(time(now))),
        observed_generation: pod.metadata.generation,
        ..PodCondition::default()
    }
}

fn initialized(pod: &Pod, phase: &str, init: &[ContainerStatus], main: &[ContainerStatus], rejected: bool) -> Verdict {
    let early: Vec<_> = pod.spec.iter().flat_map(container::all).filter(|(role, _)| *role != Role::Main).collect();
    if rejected {
        return Err(Reason::new("PodFailed", "")).or_else(|why| if early.is_empty() { Ok(None) } else { Err(why) });
    }
    let begun = main.iter().any(|status| {
        let state = status.state.as_ref();
        let last = status.last_state.as_ref().map(|last| last.terminated.as_ref().and_then(|last| last.reason.as_deref()));
        // A Pod that began again waits for its init containers again.
        let before = last.is_some_and(|reason| reason != Some(RESTARTING_ALL));
        state.is_some_and(|state| state.running.is_some() || state.terminated.is_some()) || before
    });
    let (mut unknown, mut incomplete) = (Vec::new(), Vec::new());
    for (role, container) in early {
        let Some(status) = init.iter().find(|status| status.name == container.name) else {
            unknown.push(container.name.as_str());
            continue;
        };
        let done = if role == Role::Sidecar { begun || status.started == Some(true) } else { begun || status.ready };
        if !done {
            incomplete.push(container.name.as_str());
        }
    }
    if phase == "Succeeded" && unknown.is_empty() {
        return Ok(Some("PodCompleted"));
    }
    lists(&unknown, &incomplete, "incomplete").map_or(Ok(None), |message| Err(Reason::new("ContainersNotInitialized", message)))
}

fn containers_ready(pod: &Pod, phase: &str, init: &[ContainerStatus], main: &[ContainerStatus]) -> Verdict {
    match phase {
        "Succeeded" => return Err(Reason::new("PodCompleted", "")),
        "Failed" => return Err(Reason::new("PodFailed", "")),
        _ => {}
    }
    let (mut unknown, mut unready) = (Vec::new(), Vec::new());
    for (role, container) in pod.spec.iter().flat_map(container::all) {
        let list = match role {
            Role::Init | Role::Ephemeral => continue,
            Role::Sidecar => init,
            Role::Main => main,
        };
        match list.iter().find(|status| status.name == container.name) {
            None => unknown.push(container.name.as_str()),
            Some(status) if !status.ready => unready.push(container.name.as_str()),
            Some(_) => {}
        }
    }
    lists(&unknown, &unready, "unready").map_or(Ok(None), |message| Err(Reason::new("ContainersNotReady", message)))
}

/// Upstream's sentence of names; Go prints a list in brackets.
fn lists(unknown: &[&str], lacking: &[&str], what: &str) -> Option<String> {
    let mut parts = Vec::new();
    if !unknown.is_empty() {
        parts.push(format!("containers with unknown status: [{}]", unknown.join(" ")));
    }
    if !lacking.is_empty() {
        parts.push(format!("containers with {what} status: [{}]", lacking.join(" ")));
    }
    Some(parts.join(", ")).filter(|text| !text.is_empty())
}

fn gates(pod: &Pod) -> Verdict {
    let mut missing = Vec::new();
    for gate in pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten()) {
        let name = &gate.condition_type;
        match reported_condition(pod, name) {
            None => missing.push(format!("corresponding condition of pod readiness gate \"{name}\" does not exist.")),
            Some(condition) if condition.status != "True" => {
                missing.push(format!("the status of pod readiness gate \"{name}\" is not \"True\", but {}", condition.status));
            }
            Some(_) => {}
        }
    }
    if missing.is_empty() { Ok(None) } else { Err(Reason::new("ReadinessGatesNotReady", missing.join(", "))) }
}
