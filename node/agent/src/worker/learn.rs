//! Applies reports to a Pod's record, and returns the events to record. Pure: the time is an argument.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use node_images::Image;
use runtimes_contract::RuntimeError;
use thiserror::Error;

use crate::action::ActionError;
use crate::backoff::{self, Backoff, go_duration};
use crate::cleanup::CleanupError;
use crate::container::probes::ProbeKind;
use crate::container::resources::InstanceResources;
use crate::container::{self, Role};
use crate::error::chain;
use crate::layout::PodName;
use crate::reason::Reason;
use crate::record::{
    Cause, Clean, Condemned, ContainerRecord, ExitedInstance, Failure, ImageState, InstanceState, PodRecord, PodSandbox, Resize,
    RunningInstance, SandboxState, Waiting, restarts,
};
use crate::termination::{EVICTED, NODE_SHUTDOWN, Termination, TerminationCause};

/// How long `ErrImagePull` is shown before it becomes `ImagePullBackOff`.
const PULL_ERROR_MIN: SignedDuration = SignedDuration::from_secs(2);
/// First wait after a failure of the node itself (namespaces, volumes, clean-up).
const FAULT_RETRY: SignedDuration = SignedDuration::from_millis(500);
/// The longest such wait; upstream's for volumes.
const FAULT_RETRY_MAX: SignedDuration = SignedDuration::from_secs(122);

/// The wait after limits could not be set: the memory in use may shrink.
const RESIZE_RETRY: SignedDuration = SignedDuration::from_secs(10);

/// The report of an effect.
#[derive(Debug)]
pub(crate) enum Report {
    /// The sandbox exists, or the reason in the event.
    Prepared(Result<PodSandbox, Reason>),
    /// The pause container has ended.
    SandboxEnded,
    /// A container's image is present, or why the container waits.
    Pulled(String, Result<Arc<Image>, Reason>),
    /// An instance runs, or was not started.
    Started(String, Result<RunningInstance, StartFault>),
    /// A postStart hook is over.
    Hooked(String, u32, Result<(), ActionError>),
    /// A probe's verdict changed.
    Probed { name: String, attempt: u32, kind: ProbeKind, success: bool },
    /// An instance has ended.
    Exited(String, u32, ExitedInstance),
    /// Everything of the Pod is removed, or the error.
    Cleaned(Result<(), CleanupError>),
    /// The resources of a Pod and of its instances from now on.
    Resized(Resized),
    /// Volumes were refreshed; when they must be refreshed next.
    Refreshed(Option<Timestamp>),
}

/// The resources of a Pod and of its instances from now on.
#[derive(Debug, Default)]
pub(crate) struct Resized {
    /// Those that were set on instances.
    pub(crate) instances: Vec<ResizedInstance>,
    /// `spec.resources` as the Pod's cgroup has them.
    pub(crate) pod_level: Option<Box<ResourceRequirements>>,
    /// Why some differ from the allocation.
    pub(crate) errors: Vec<ResizeError>,
}

/// The resources of an instance from now on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ResizedInstance {
    pub(crate) container: String,
    pub(crate) attempt: u32,
    pub(crate) resources: InstanceResources,
}

/// Why an instance does not run.
#[derive(Debug)]
pub(crate) enum StartFault {
    /// It could not be created: why the container waits.
    Unmade(Reason),
    /// It was created and ended at once.
    Ended(ExitedInstance),
    /// The Pod is to end, so it was not created.
    Ending,
    /// The Pod's pause container does not run any more, so it was not created. [`Report::SandboxEnded`] follows.
    NoSandbox,
}

impl StartFault {
    /// Upstream's code of the fault. `None` when nothing is at fault: the Pod is to end.
    pub(crate) fn code(&self) -> Option<&'static str> {
        match self {
            Self::Unmade(Reason { reason, .. }) => Some(reason),
            Self::Ended(_) => Some("RunContainerError"),
            Self::NoSandbox => Some("CreateContainerError"),
            Self::Ending => None,
        }
    }
}

/// Why a Pod or an instance does not have its allocated resources.
#[derive(Debug, Error)]
pub(crate) enum ResizeError {
    #[error(transparent)]
    Cgroup(#[from] RuntimeError),
    /// The kernel would kill the container. The words are upstream's.
    #[error("attempting to set container \"{container}\" memory limit ({limit}) below current usage ({used})")]
    BelowUsage { container: String, limit: u64, used: u64 },
    /// The kernel would kill containers of the Pod. The words are upstream's.
    #[error("attempting to set pod memory limit ({limit}) below current usage ({used})")]
    PodBelowUsage { limit: u64, used: u64 },
    #[error("interrupted")]
    Interrupted,
}

/// An event to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// The container that it concerns; `None` is the Pod.
    pub(crate) container: Option<String>,
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

fn warning(container: &str, reason: &'static str, message: String) -> Note {
    Note { container: Some(container.to_owned()), warning: true, reason, message }
}

impl PodRecord {
    /// Handles a report.
    pub(crate) fn learn(&mut self, pod: &Pod, report: Report, now: Timestamp) -> Vec<Note> {
        match report {
            Report::Prepared(result) => self.prepared(result, now),
            Report::SandboxEnded => {
                self.sandbox_ended();
                Vec::new()
            }
            Report::Pulled(name, result) => self.pulled(pod, &name, result, now),
            Report::Started(name, result) => self.started(pod, &name, result, now),
            Report::Exited(name, attempt, ended) => {
                let current = self.containers.get(&name).is_some_and(|record| record.alive().is_some_and(|alive| alive.attempt == attempt));
                if current { self.exited(pod, &name, ended, now) } else { Vec::new() }
            }
            Report::Hooked(name, attempt, result) => self.hooked(&name, attempt, result),
            Report::Probed { name, attempt, kind, success } => self.probed(&name, attempt, kind, success),
            Report::Cleaned(result) => self.cleaned(result, now),
            Report::Resized(resized) => self.resized(resized, now),
            Report::Refreshed(due) => {
                self.refreshing = false;
                if let SandboxState::Ready(sandbox) = &mut self.sandbox {
                    sandbox.volumes_due = due;
                }
                Vec::new()
            }
        }
    }

    fn prepared(&mut self, result: Result<PodSandbox, Reason>, now: Timestamp) -> Vec<Note> {
        match result {
            Ok(sandbox) => {
                self.pause = sandbox.pause.clone();
                self.sandbox = SandboxState::Ready(sandbox);
                self.faults = Backoff::default();
                Vec::new()
            }
            Err(Reason { reason, message }) => {
                self.sandbox = SandboxState::Failed { until: self.fault_until(now) };
                vec![Note { container: None, warning: true, reason, message }]
            }
        }
    }

    fn cleaned(&mut self, result: Result<(), CleanupError>, now: Timestamp) -> Vec<Note> {
        match result {
            Ok(()) => {
                self.clean = Clean::Done;
                self.sandbox = SandboxState::Absent;
                Vec::new()
            }
            Err(error) => {
                let message = chain(&error);
                self.clean = Clean::Failed { until: self.fault_until(now) };
                vec![Note { container: None, warning: true, reason: "FailedKillPod", message: format!("error killing pod: {message}") }]
            }
        }
    }

    fn resized(&mut self, resized: Resized, now: Timestamp) -> Vec<Note> {
        let Resized { instances, pod_level, errors } = resized;
        let again = self.resize == Resize::Busy { again: true };
        self.pod_level = pod_level;
        for ResizedInstance { container, attempt, resources } in instances {
            if let Some(alive) = self.containers.get_mut(&container).and_then(|record| record.alive_mut(attempt)) {
                alive.resources = resources;
            }
        }
        if errors.is_empty() {
            self.resize = if again { Resize::Due { until: now, fault: None } } else { Resize::Settled };
            return Vec::new();
        }
        let message = errors.iter().map(|error| chain(error)).collect::<Vec<_>>().join("; ");
        let until = if again { now } else { now.checked_add(RESIZE_RETRY).unwrap_or(now) };
        self.resize = Resize::Due { until, fault: Some(message.clone()) };
        let message = format!("Pod resize error: {message}");
        vec![Note { container: None, warning: true, reason: "ResizeError", message }]
    }

    /// Reports the end of a resize once: when the Pod and all running containers have their allocated resources, restarts included.
    fn resize_completed(&mut self, pod: &Pod) -> Option<Note> {
        if self.resizing.is_none() || self.ends(pod) || self.lags(pod) {
            return None;
        }
        self.resizing = None;
        Some(Note { container: None, warning: false, reason: "ResizeCompleted", message: "Pod resize completed".to_owned() })
    }

    /// Doubles from [`FAULT_RETRY`] to [`FAULT_RETRY_MAX`].
    fn fault_until(&mut self, now: Timestamp) -> Timestamp {
        self.faults.next(now);
        // The shared back-off counts in tens of seconds; this one begins with a twentieth of it.
        let delay = (self.faults.delay() / 20).max(FAULT_RETRY).min(FAULT_RETRY_MAX);
        now.checked_add(delay).unwrap_or(now)
    }

    fn pulled(&mut self, pod: &Pod, name: &str, result: Result<Arc<Image>, Reason>, now: Timestamp) -> Vec<Note> {
        let Some(record) = self.containers.get_mut(name) else { return Vec::new() };
        let Reason { reason, message } = match result {
            Ok(image) => {
                record.image = ImageState::Ready(image);
                record.pulls = Backoff::default();
                if record.waiting.as_ref().is_some_and(|waiting| is_pull_reason(&waiting.reason)) {
                    record.waiting = None;
                }
                return Vec::new();
            }
            Err(fault) => fault,
        };
        record.image = ImageState::Unknown;
        record.pulls.next(now);
        let until = now.checked_add(record.pulls.delay()).unwrap_or(now);
        let backs_off_at = (reason == "ErrImagePull").then(|| now.checked_add(PULL_ERROR_MIN).unwrap_or(now));
        record.waiting = Some(Waiting { reason: reason.to_owned(), message: message.clone(), until, backs_off_at });
        let image = image_of(pod, name);
        let what = match reason {
            "ErrImagePull" => Note { reason: "Failed", ..warning(name, "Failed", format!("Failed to pull image \"{image}\": {message}")) },
            "ErrImageNeverPull" => warning(name, "ErrImageNeverPull", message),
            _ => warning(name, "InspectFailed", format!("Failed to apply default image tag \"{image}\": {message}")),
        };
        vec![what, warning(name, "Failed", format!("Error: {reason}"))]
    }

    /// `ErrImagePull` has been shown for long enough.
    pub(crate) fn back_off_pull(&mut self, pod: &Pod, name: &str) -> Vec<Note> {
        let Some(waiting) = self.containers.get_mut(name).and_then(|record| record.waiting.as_mut()) else { return Vec::new() };
        let image = image_of(pod, name);
        let words = format!("Back-off pulling image \"{image}\"");
        *waiting = Waiting {
            reason: "ImagePullBackOff".to_owned(),
            message: format!("{words}: ErrImagePull: {}", waiting.message),
            until: waiting.until,
            backs_off_at: None,
        };
        let back_off = Note { container: Some(name.to_owned()), warning: false, reason: "BackOff", message: words };
        vec![back_off, warning(name, "Failed", "Error: ImagePullBackOff".to_owned())]
    }

    fn started(&mut self, pod: &Pod, name: &str, result: Result<RunningInstance, StartFault>, now: Timestamp) -> Vec<Note> {
        let Some(record) = self.containers.get_mut(name) else { return Vec::new() };
        let before = match std::mem::replace(&mut record.run, InstanceState::Idle) {
            InstanceState::Starting { before } => before,
            other => {
                record.run = other;
                return Vec::new();
            }
        };
        match result {
            Ok(alive) => {
                record.attempts = alive.attempt + 1;
                record.run = InstanceState::Running(alive);
                record.last = before.or(record.last.take());
                record.waiting = None;
                record.reset = false;
                self.begins_again &= record.role != Role::Main;
                Vec::new()
            }
            Err(StartFault::Unmade(Reason { reason, message })) => {
                record.run = before.map_or(InstanceState::Idle, InstanceState::Ended);
                record.image = ImageState::Unknown;
                // The wait does not grow, as upstream: users correct what is missing (a ConfigMap).
                let until = now.checked_add(backoff::INITIAL).unwrap_or(now);
                record.waiting = Some(Waiting { reason: reason.to_owned(), message: message.clone(), until, backs_off_at: None });
                vec![warning(name, "Failed", format!("Error: {message}"))]
            }
            Err(fault @ (StartFault::Ending | StartFault::NoSandbox)) => {
                record.run = before.map_or(InstanceState::Idle, InstanceState::Ended);
                if matches!(fault, StartFault::NoSandbox) {
                    self.await_sandbox_end();
                }
                Vec::new()
            }
            Err(StartFault::Ended(ended)) => {
                record.attempts += 1;
                record.last = before.or(record.last.take());
                record.reset = false;
                self.begins_again &= record.role != Role::Main;
                let message = ended.message.clone();
                let mut notes = vec![warning(name, "Failed", format!("Error: {message}"))];
                notes.extend(self.exited(pod, name, ended, now));
                notes
            }
        }
    }

    fn exited(&mut self, pod: &Pod, name: &str, ended: ExitedInstance, now: Timestamp) -> Vec<Note> {
        let Some(spec) = &pod.spec else { return Vec::new() };
        // Containers that are ended for their Pod's new beginning have done nothing to wait for.
        let ending = self.ending_since.is_some() || self.restarts_all(spec);
        let Some(record) = self.containers.get_mut(name) else { return Vec::new() };
        let ended = ExitedInstance { replaced: record.alive().is_some_and(|alive| alive.replaced), ..ended };
        record.image = ImageState::Unknown;
        let declared = container::find(pod, name).map(|(_, container)| container);
        let again = !ending && declared.is_some_and(|container| restarts(spec, record.role, container, &ended));
        let note = again.then(|| back_off(record, pod, name, now)).flatten();
        record.run = InstanceState::Ended(ended);
        note.into_iter().collect()
    }

    fn hooked(&mut self, name: &str, attempt: u32, result: Result<(), ActionError>) -> Vec<Note> {
        let Some(alive) = self.containers.get_mut(name).and_then(|record| record.alive_mut(attempt)) else { return Vec::new() };
        match result {
            Ok(()) => {
                alive.hooked = true;
                Vec::new()
            }
            Err(error) => {
                alive.condemned = Some(Condemned::PostStartHook);
                vec![warning(name, "FailedPostStartHook", format!("PostStartHook failed: {}", chain(&error)))]
            }
        }
    }

    fn probed(&mut self, name: &str, attempt: u32, kind: ProbeKind, success: bool) -> Vec<Note> {
        let Some(alive) = self.containers.get_mut(name).and_then(|record| record.alive_mut(attempt)) else { return Vec::new() };
        match (kind, success) {
            (ProbeKind::Readiness, ready) => alive.readiness_ok = ready,
            (ProbeKind::Startup, true) => alive.startup_ok = true,
            (ProbeKind::Startup | ProbeKind::Liveness, false) => alive.condemned = Some(Condemned::Probe(kind)),
            (ProbeKind::Liveness, true) => {}
        }
        Vec::new()
    }

    /// Checks the Pod's present state: new ephemeral containers get a record, and the end of a resize is reported once.
    pub(crate) fn look(&mut self, pod: &Pod) -> Vec<Note> {
        self.add_ephemeral(pod);
        if self.pod_level_in_use != self.pod_level && !self.lags(pod) {
            self.pod_level_in_use.clone_from(&self.pod_level);
        }
        self.resize_completed(pod).into_iter().collect()
    }

    /// The Pod was active for longer than it may be.
    pub(crate) fn expire(&mut self) -> Vec<Note> {
        let message = "Pod was active on the node longer than the specified deadline".to_owned();
        self.failure = Some(Failure { reason: "DeadlineExceeded".to_owned(), message: message.clone(), cause: Cause::Deadline });
        vec![Note { container: None, warning: false, reason: "DeadlineExceeded", message }]
    }

    /// The node ends the Pod, unless it has ended already. A Pod that is ending for another reason keeps that reason, and gets no more
    /// time than the order leaves.
    pub(crate) fn terminate(&mut self, pod: &Pod, termination: &Termination) -> Vec<Note> {
        match termination.cause {
            TerminationCause::NodeShutdown { until } => self.shutdown_at = Some(until),
            TerminationCause::Eviction { grace_seconds_max, .. } => self.grace_seconds_max = self.grace_seconds_max.min(grace_seconds_max),
        }
        let ended = !self.anything_runs() && pod.spec.as_ref().is_some_and(|spec| self.finished(spec));
        if self.failure.is_some() || self.ended_before || self.gone || ended {
            return Vec::new();
        }
        let message = termination.message.clone();
        let (reason, cause) = match termination.cause {
            TerminationCause::Eviction { disruption, .. } => (EVICTED, Cause::Eviction { disruption }),
            TerminationCause::NodeShutdown { .. } => (NODE_SHUTDOWN, Cause::NodeShutdown),
        };
        self.failure = Some(Failure { reason: reason.to_owned(), message: message.clone(), cause });
        // As upstream, a shutdown has an event of the Node alone.
        let is_eviction = cause != Cause::NodeShutdown;
        is_eviction.then_some(Note { container: None, warning: true, reason, message }).into_iter().collect()
    }
}

/// Starts a container's back-off after an exit; the message is upstream's, once for each wait.
///
/// Counted from the report of the exit: a runtime's clock may differ from this one.
fn back_off(record: &mut ContainerRecord, pod: &Pod, name: &str, now: Timestamp) -> Option<Note> {
    let until = record.crash.until(now);
    let delay = record.crash.delay();
    record.crash.next(now);
    if until <= now {
        record.waiting = None;
        return None;
    }
    let at = PodName::of(pod);
    let message = format!("back-off {} restarting failed container={name} pod={at}", go_duration(delay));
    record.waiting = Some(Waiting { reason: "CrashLoopBackOff".to_owned(), message, until, backs_off_at: None });
    Some(warning(name, "BackOff", format!("Back-off restarting failed container {name} in pod {at}")))
}

fn is_pull_reason(reason: &str) -> bool {
    matches!(reason, "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "InvalidImageName")
}

fn image_of(pod: &Pod, name: &str) -> String {
    container::find_any(pod, name).and_then(|(_, container)| container.image.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
