//! The next step of a Pod. Pure: the same Pod, record and time (of the steady clock) give the same step.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use crate::container::probes::ProbeKind;
use crate::container::{self, Role, ephemeral};
use crate::layout::spec_hash;
use crate::record::{
    Clean, Condemned, ContainerRecord, ExitedInstance, ImageState, InstanceState, PodRecord, Resize, RunningInstance, SandboxState,
    restarts, restarts_after_probe,
};
use crate::resize::{self, Pending};

/// Upstream's default of `terminationGracePeriodSeconds`.
pub(crate) const GRACE_SECONDS: i64 = 30;
/// The period in which a deferred resize is checked again: other Pods may have ended.
const WEIGHED_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Make namespaces, volumes, files and cgroup.
    Prepare,
    /// Let the Pod have another sandbox: nothing runs in the one that ended.
    Recreate,
    /// Make sure that the image of a container is present.
    Pull(String),
    /// Make and start the next instance of a container.
    Start(String),
    /// End the running instance of a container.
    Kill {
        /// The attempt.
        name: String,
        /// The message of the event.
        message: String,
        /// Another instance follows, whatever the exit code of this one is.
        replaced: bool,
    },
    /// Let the Pod begin again: all its containers have ended, because of a rule that restarts them all.
    Reset,
    /// Set the allocated resources on the running containers.
    Resize,
    /// Turn a container's `ErrImagePull` into `ImagePullBackOff`.
    BackOffPull(String),
    /// The Pod has been active for too long.
    Expire,
    /// Free everything of the Pod.
    Clean,
    /// Write the final status and delete the Pod from the API.
    Delete,
    /// Nothing until something is reported, or until then.
    Wait(Option<Timestamp>),
    /// Nothing until the Pod changes. The worker ends once the API has the Pod's final status.
    Finish,
    /// The Pod is gone: the worker is done.
    Stop,
}

/// The next step.
pub(crate) fn plan(pod: &Pod, pod_record: &PodRecord, now: Timestamp) -> Step {
    let Some(spec) = &pod.spec else { return if pod_record.gone { Step::Stop } else { Step::Wait(None) } };
    if pod_record.ends(pod) {
        return end(pod, pod_record, now);
    }
    let expires = deadline(spec, pod_record);
    if expires.is_some_and(|at| at <= now) {
        return Step::Expire;
    }
    match run(spec, pod_record, now) {
        Step::Wait(until) => Step::Wait(earliest(until, expires)),
        step => step,
    }
}

/// The Pod is to run.
fn run(spec: &PodSpec, pod_record: &PodRecord, now: Timestamp) -> Step {
    let mut until = match pod_record.sandbox {
        SandboxState::Absent => return Step::Prepare,
        SandboxState::Failed { until } if until <= now => return Step::Prepare,
        SandboxState::Failed { until } => Some(until),
        SandboxState::Ending => return Step::Wait(None),
        SandboxState::Lost => return end_with_sandbox(pod_record),
        SandboxState::Making | SandboxState::Ready(_) => None,
    };
    if let Resize::Due { until: due, .. } = pod_record.resize
        && pod_record.ready_sandbox().is_some()
    {
        if due <= now {
            return Step::Resize;
        }
        until = earliest(until, Some(due));
    }
    if pod_record.pending.as_ref().is_some_and(Pending::is_deferred) {
        until = earliest(until, now.checked_add(WEIGHED_AGAIN).ok());
    }
    if pod_record.restarts_all(spec) {
        return restart_all(spec, pod_record);
    }
    // As upstream, before init containers have ended: they may be what is debugged.
    for container in spec.ephemeral_containers.iter().flatten() {
        let Some(record) = pod_record.container(&container.name) else { continue };
        match drive(spec, Role::Ephemeral, &ephemeral::as_container(container), record, pod_record, now) {
            Step::Wait(more) => until = earliest(until, more),
            step => return step,
        }
    }
    let begun = pod_record.main_begun();
    for (role, container) in container::all(spec) {
        let Some(record) = pod_record.container(&container.name) else { continue };
        if role == Role::Init && begun {
            continue;
        }
        match drive(spec, role, container, record, pod_record, now) {
            Step::Wait(more) => until = earliest(until, more),
            step => return step,
        }
        // The next container in line waits for this one.
        let passed = match role {
            Role::Init => record.ended().is_some_and(ExitedInstance::is_success),
            Role::Sidecar => begun || record.alive().is_some_and(|alive| alive.started()),
            Role::Main | Role::Ephemeral => true,
        };
        if !passed {
            break;
        }
    }
    Step::Wait(until)
}

/// The sandbox has ended: ends what may still run, ephemeral containers too; then the Pod gets another sandbox. Exit codes decide which
/// containers follow, as after any other end.
fn end_with_sandbox(pod_record: &PodRecord) -> Step {
    let runs = pod_record.containers.iter().map(|(name, record)| (name.as_str(), &record.run));
    end_all(runs, stop).unwrap_or(Step::Recreate)
}

/// Ends all containers that the Pod was created with; then it begins again.
fn restart_all(spec: &PodSpec, pod_record: &PodRecord) -> Step {
    let of_pod = container::all(spec).map(|(_, container)| &container.name);
    let runs = of_pod.filter_map(|name| Some((name.as_str(), &pod_record.container(name)?.run)));
    let kill = |name: &str| Step::Kill {
        message: format!("Container {name} will be restarted with all containers"),
        name: name.to_owned(),
        replaced: true,
    };
    end_all(runs, kill).unwrap_or(Step::Reset)
}

/// The next step until none of these containers runs: `end` for each one that is not being ended yet, then waiting.
fn end_all<'a>(runs: impl Iterator<Item = (&'a str, &'a InstanceState)>, end: impl Fn(&str) -> Step) -> Option<Step> {
    let mut waits = false;
    for (name, run) in runs {
        match run {
            InstanceState::Running(alive) if !alive.stopping => return Some(end(name)),
            InstanceState::Running(_) | InstanceState::Starting { .. } => waits = true,
            InstanceState::Idle | InstanceState::Ended(_) => {}
        }
    }
    waits.then_some(Step::Wait(None))
}

/// Whether the files of images that are volumes have ids of the Pod's user namespace, which its sandbox has.
fn mounts_images_in_sandbox(spec: &PodSpec) -> bool {
    spec.host_users == Some(false) && spec.volumes.iter().flatten().any(|volume| volume.image.is_some())
}

/// The step that one container needs.
fn drive(spec: &PodSpec, role: Role, container: &Container, record: &ContainerRecord, pod_record: &PodRecord, now: Timestamp) -> Step {
    match &record.run {
        InstanceState::Starting { .. } => return Step::Wait(None),
        InstanceState::Running(alive) => {
            let name = container.name.clone();
            return match alive.condemned {
                _ if alive.stopping => Step::Wait(None),
                Some(condemned) => kill_condemned(spec, role, container, condemned),
                None if alive.hash != spec_hash(container) => {
                    Step::Kill { message: format!("Container {name} definition changed, will be restarted"), name, replaced: true }
                }
                None => fit(spec, container, alive, pod_record),
            };
        }
        InstanceState::Ended(ended) if !restarts(spec, role, container, ended) => return Step::Wait(None),
        InstanceState::Ended(_) | InstanceState::Idle => {}
    }
    if let Some(waiting) = record.waiting.as_ref().filter(|waiting| waiting.until > now) {
        return match waiting.backs_off_at {
            Some(backs_off_at) if backs_off_at <= now => Step::BackOffPull(container.name.clone()),
            backs_off_at => Step::Wait(earliest(backs_off_at, Some(waiting.until))),
        };
    }
    match &record.image {
        ImageState::Unknown if pod_record.ready_sandbox().is_some() || !mounts_images_in_sandbox(spec) => {
            Step::Pull(container.name.clone())
        }
        ImageState::Ready(_) if pod_record.ready_sandbox().is_some() => Step::Start(container.name.clone()),
        ImageState::Unknown | ImageState::Pulling | ImageState::Ready(_) => Step::Wait(None),
    }
}

/// Ends an instance that failed a hook or a probe. As upstream, another instance follows a failed probe unless the policy is
/// `Never`, even when it exits with 0; after a failed hook the exit code decides.
fn kill_condemned(spec: &PodSpec, role: Role, container: &Container, condemned: Condemned) -> Step {
    let name = container.name.clone();
    let probe = match condemned {
        Condemned::PostStartHook => return Step::Kill { name, message: "FailedPostStartHook".to_owned(), replaced: false },
        Condemned::Probe(ProbeKind::Startup) => "startup",
        Condemned::Probe(ProbeKind::Liveness | ProbeKind::Readiness) => "liveness",
    };
    let message = match role {
        Role::Init | Role::Sidecar => format!("Init container {name} failed {probe} probe"),
        Role::Main | Role::Ephemeral if !restarts_after_probe(spec, container) => {
            return Step::Kill { message: format!("Container {name} failed {probe} probe"), name, replaced: false };
        }
        Role::Main | Role::Ephemeral => format!("Container {name} failed {probe} probe, will be restarted"),
    };
    Step::Kill { name, message, replaced: true }
}

/// Whether a running instance has its allocated resources: one that started before the last change does not.
fn fit(spec: &PodSpec, container: &Container, alive: &RunningInstance, pod_record: &PodRecord) -> Step {
    if !alive.resources.change(spec, container).any() {
        return Step::Wait(None);
    }
    let restarts = resize::restarts(spec, container, &alive.resources);
    match &pod_record.resize {
        Resize::Settled if !restarts => Step::Resize,
        // The Pod's own limits come first. A container that must wait does not block the others.
        Resize::Settled | Resize::Due { fault: Some(_), .. } if restarts => {
            let name = container.name.clone();
            Step::Kill { message: format!("Container {name} resize requires restart"), name, replaced: true }
        }
        _ => Step::Wait(None),
    }
}

/// The Pod is to end: first its containers, then, in reverse order, its sidecars, then its sandbox.
fn end(pod: &Pod, pod_record: &PodRecord, now: Timestamp) -> Step {
    let mut sidecars_wait = false;
    for (name, record) in &pod_record.containers {
        if record.role == Role::Sidecar {
            continue;
        }
        match &record.run {
            InstanceState::Running(alive) if !alive.stopping => return stop(name),
            InstanceState::Running(_) | InstanceState::Starting { .. } => sidecars_wait = true,
            InstanceState::Idle | InstanceState::Ended(_) => {}
        }
    }
    if sidecars_wait {
        return Step::Wait(None);
    }
    let sidecars = pod.spec.iter().flat_map(container::all).filter(|(role, _)| *role == Role::Sidecar);
    for (_, container) in sidecars.collect::<Vec<_>>().into_iter().rev() {
        match pod_record.container(&container.name).map(|record| &record.run) {
            Some(InstanceState::Running(alive)) if !alive.stopping => return stop(&container.name),
            Some(InstanceState::Running(_) | InstanceState::Starting { .. }) => return Step::Wait(None),
            _ => {}
        }
    }
    if pod_record.sandbox == SandboxState::Making || pod_record.refreshing {
        return Step::Wait(None);
    }
    match pod_record.clean {
        Clean::Not => Step::Clean,
        Clean::Busy => Step::Wait(None),
        Clean::Failed { until } if until > now => Step::Wait(Some(until)),
        Clean::Failed { .. } => Step::Clean,
        // It had ended by itself, and its logs were kept.
        Clean::Done if pod_record.forgets_logs(pod) && !pod_record.logs_forgotten => Step::Clean,
        Clean::Done if pod_record.gone => Step::Stop,
        Clean::Done if pod_record.delete_sent => Step::Wait(None),
        Clean::Done if pod.metadata.deletion_timestamp.is_some() => Step::Delete,
        Clean::Done => Step::Finish,
    }
}

fn stop(name: &str) -> Step {
    Step::Kill { name: name.to_owned(), message: format!("Stopping container {name}"), replaced: false }
}

/// When `activeDeadlineSeconds` is over.
fn deadline(spec: &PodSpec, pod_record: &PodRecord) -> Option<Timestamp> {
    let seconds = spec.active_deadline_seconds?;
    pod_record.active_since.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// The deadline for an instance that is stopped now (`ending_since` is when the Pod began
/// to end).
pub(crate) fn kill_deadline(pod: &Pod, pod_record: &PodRecord, now: Timestamp) -> Timestamp {
    let of_spec = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(GRACE_SECONDS);
    let seconds = match pod.metadata.deletion_grace_period_seconds {
        Some(seconds) if pod.metadata.deletion_timestamp.is_some() => seconds,
        _ => of_spec,
    };
    // At least one second, as upstream: the process must get the signal.
    let grace = SignedDuration::from_secs(seconds.min(pod_record.grace_seconds_max).max(1));
    let own = pod_record.ending_since.unwrap_or(now).checked_add(grace).unwrap_or(now);
    pod_record.shutdown_at.map_or(own, |at| at.min(own))
}

fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests;
