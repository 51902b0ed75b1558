//! What a report changes in what the worker knows, and what people are told of it (events). Pure: the
//! clock comes in.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use node_images::Image;

use crate::backoff::{self, Backoff, go_duration};
use crate::container;
use crate::container::probes::ProbeKind;
use crate::eviction::{self, Eviction};
use crate::layout::PodName;
use crate::record::{Alive, Base, Cause, Clean, Condemned, Ended, Facts, Failure, Ground, Hold, ImageKnown, Known, Resize, Run, restarts};

/// How long `ErrImagePull` is shown before it becomes `ImagePullBackOff`.
const PULL_ERROR_SHOWN: SignedDuration = SignedDuration::from_secs(2);
/// First wait after a failure of the node itself (namespaces, volumes, clean-up).
const FAULT_RETRY: SignedDuration = SignedDuration::from_millis(500);
/// Longest such wait; upstream's for volumes.
const FAULT_RETRY_MAX: SignedDuration = SignedDuration::from_secs(122);

/// Wait after limits could not be set: what is in use may become less.
const RESIZE_RETRY: SignedDuration = SignedDuration::from_secs(10);

/// What an effect reports when it is done.
#[derive(Debug)]
pub(crate) enum Report {
    /// The base is made, or why not: reason and message of the event.
    Prepared(Result<Ground, (&'static str, String)>),
    /// A container's image is there, or the waiting reason and message.
    Pulled(String, Result<Arc<Image>, (&'static str, String)>),
    /// An instance runs, or did not come to run.
    Started(String, Result<Alive, StartFault>),
    /// A postStart hook is over.
    Hooked(String, u32, Result<(), String>),
    /// A probe's verdict changed.
    Probed { name: String, attempt: u32, kind: ProbeKind, success: bool },
    /// An instance has ended.
    Exited(String, u32, Ended),
    /// The Pod's traces are removed, or what was in the way.
    Cleaned(Result<(), String>),
    /// What instances have from now on, and why some of it is not what they were allocated.
    Resized(Vec<Resized>, Result<(), String>),
    /// Volumes were looked at again; when they want it next.
    Refreshed(Option<Timestamp>),
}

/// What an instance has from now on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resized {
    pub(crate) container: String,
    pub(crate) attempt: u32,
    pub(crate) resources: ResourceRequirements,
}

/// Why an instance does not run.
#[derive(Debug)]
pub(crate) enum StartFault {
    /// It could not be made: waiting reason and message.
    Unmade(&'static str, String),
    /// It was made and ended at once.
    Ended(Ended),
    /// The Pod is to end, so it was not made.
    Ending,
}

/// An event to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// The container it is about; `None` is the Pod.
    pub(crate) container: Option<String>,
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

fn warning(container: &str, reason: &'static str, message: String) -> Note {
    Note { container: Some(container.to_owned()), warning: true, reason, message }
}

impl Facts {
    /// Takes in a report.
    pub(crate) fn learn(&mut self, pod: &Pod, report: Report, now: Timestamp) -> Vec<Note> {
        match report {
            Report::Prepared(result) => self.prepared(result, now),
            Report::Pulled(name, result) => self.pulled(pod, &name, result, now),
            Report::Started(name, result) => self.started(pod, &name, result, now),
            Report::Exited(name, attempt, ended) => {
                let current = self.containers.get(&name).is_some_and(|known| known.alive().is_some_and(|alive| alive.attempt == attempt));
                if current { self.exited(pod, &name, ended, now) } else { Vec::new() }
            }
            Report::Hooked(name, attempt, result) => self.hooked(&name, attempt, result),
            Report::Probed { name, attempt, kind, success } => self.probed(&name, attempt, kind, success),
            Report::Cleaned(result) => self.cleaned(result, now),
            Report::Resized(given, result) => self.resized(given, result, now),
            Report::Refreshed(due) => {
                self.refreshing = false;
                if let Base::Ready(ground) = &mut self.base {
                    ground.volumes_due = due;
                }
                Vec::new()
            }
        }
    }

    fn prepared(&mut self, result: Result<Ground, (&'static str, String)>, now: Timestamp) -> Vec<Note> {
        match result {
            Ok(ground) => {
                self.base = Base::Ready(ground);
                self.faults = Backoff::default();
                Vec::new()
            }
            Err((reason, message)) => {
                self.base = Base::Failed { until: self.fault_until(now) };
                vec![Note { container: None, warning: true, reason, message }]
            }
        }
    }

    fn cleaned(&mut self, result: Result<(), String>, now: Timestamp) -> Vec<Note> {
        match result {
            Ok(()) => {
                self.clean = Clean::Done;
                self.base = Base::Absent;
                Vec::new()
            }
            Err(message) => {
                self.clean = Clean::Failed { until: self.fault_until(now) };
                vec![Note { container: None, warning: true, reason: "FailedKillPod", message: format!("error killing pod: {message}") }]
            }
        }
    }

    fn resized(&mut self, given: Vec<Resized>, result: Result<(), String>, now: Timestamp) -> Vec<Note> {
        let again = self.resize == Resize::Busy { again: true };
        for Resized { container, attempt, resources } in given {
            if let Some(alive) = self.containers.get_mut(&container).and_then(|known| known.alive_mut(attempt)) {
                alive.resources = resources;
            }
        }
        match result {
            Ok(()) => {
                self.resize = if again { Resize::Due { until: now, fault: None } } else { Resize::Settled };
                Vec::new()
            }
            Err(message) => {
                let until = if again { now } else { now.checked_add(RESIZE_RETRY).unwrap_or(now) };
                self.resize = Resize::Due { until, fault: Some(message.clone()) };
                let message = format!("Pod resize error: {message}");
                vec![Note { container: None, warning: true, reason: "ResizeError", message }]
            }
        }
    }

    /// Reports the end of a resize once: when everything that runs has what it was allocated, restarts included.
    fn resize_completed(&mut self, pod: &Pod) -> Option<Note> {
        if !self.resizing || self.ends(pod) || self.lags(pod) {
            return None;
        }
        self.resizing = false;
        Some(Note { container: None, warning: false, reason: "ResizeCompleted", message: "Pod resize completed".to_owned() })
    }

    /// Doubles from [`FAULT_RETRY`] to [`FAULT_RETRY_MAX`].
    fn fault_until(&mut self, now: Timestamp) -> Timestamp {
        self.faults.next(now);
        // The shared back-off counts in tens of seconds; this one is a twentieth of it at first.
        let delay = (self.faults.delay() / 20).max(FAULT_RETRY).min(FAULT_RETRY_MAX);
        now.checked_add(delay).unwrap_or(now)
    }

    fn pulled(&mut self, pod: &Pod, name: &str, result: Result<Arc<Image>, (&'static str, String)>, now: Timestamp) -> Vec<Note> {
        let Some(known) = self.containers.get_mut(name) else { return Vec::new() };
        let (reason, message) = match result {
            Ok(image) => {
                known.image = ImageKnown::Ready(image);
                known.pulls = Backoff::default();
                if known.hold.as_ref().is_some_and(|hold| is_pull_reason(&hold.reason)) {
                    known.hold = None;
                }
                return Vec::new();
            }
            Err(fault) => fault,
        };
        known.image = ImageKnown::Unknown;
        known.pulls.next(now);
        let until = now.checked_add(known.pulls.delay()).unwrap_or(now);
        let turns = (reason == "ErrImagePull").then(|| now.checked_add(PULL_ERROR_SHOWN).unwrap_or(now));
        known.hold = Some(Hold { reason: reason.to_owned(), message: message.clone(), until, turns });
        let image = image_of(pod, name);
        let what = match reason {
            "ErrImagePull" => Note { reason: "Failed", ..warning(name, "Failed", format!("Failed to pull image \"{image}\": {message}")) },
            "ErrImageNeverPull" => warning(name, "ErrImageNeverPull", message),
            _ => warning(name, "InspectFailed", format!("Failed to apply default image tag \"{image}\": {message}")),
        };
        vec![what, warning(name, "Failed", format!("Error: {reason}"))]
    }

    /// `ErrImagePull` has been shown for long enough.
    pub(crate) fn turn(&mut self, pod: &Pod, name: &str) -> Vec<Note> {
        let Some(hold) = self.containers.get_mut(name).and_then(|known| known.hold.as_mut()) else { return Vec::new() };
        let image = image_of(pod, name);
        let words = format!("Back-off pulling image \"{image}\"");
        *hold = Hold {
            reason: "ImagePullBackOff".to_owned(),
            message: format!("{words}: ErrImagePull: {}", hold.message),
            until: hold.until,
            turns: None,
        };
        let back_off = Note { container: Some(name.to_owned()), warning: false, reason: "BackOff", message: words };
        vec![back_off, warning(name, "Failed", "Error: ImagePullBackOff".to_owned())]
    }

    fn started(&mut self, pod: &Pod, name: &str, result: Result<Alive, StartFault>, now: Timestamp) -> Vec<Note> {
        let Some(known) = self.containers.get_mut(name) else { return Vec::new() };
        let before = match std::mem::replace(&mut known.run, Run::Idle) {
            Run::Starting { before } => before,
            other => {
                known.run = other;
                return Vec::new();
            }
        };
        match result {
            Ok(alive) => {
                known.attempts = alive.attempt + 1;
                known.run = Run::Running(alive);
                known.last = before.or(known.last.take());
                known.hold = None;
                Vec::new()
            }
            Err(StartFault::Unmade(reason, message)) => {
                known.run = before.map_or(Run::Idle, Run::Ended);
                known.image = ImageKnown::Unknown;
                // Not longer and longer, as upstream: what is missing (a ConfigMap) is put right by people.
                let until = now.checked_add(backoff::INITIAL).unwrap_or(now);
                known.hold = Some(Hold { reason: reason.to_owned(), message: message.clone(), until, turns: None });
                vec![warning(name, "Failed", format!("Error: {message}"))]
            }
            Err(StartFault::Ending) => {
                known.run = before.map_or(Run::Idle, Run::Ended);
                Vec::new()
            }
            Err(StartFault::Ended(ended)) => {
                known.attempts += 1;
                known.last = before.or(known.last.take());
                let message = ended.message.clone();
                let mut notes = vec![warning(name, "Failed", format!("Error: {message}"))];
                notes.extend(self.exited(pod, name, ended, now));
                notes
            }
        }
    }

    fn exited(&mut self, pod: &Pod, name: &str, ended: Ended, now: Timestamp) -> Vec<Note> {
        let ending = self.ending_since.is_some();
        let (Some(known), Some(spec)) = (self.containers.get_mut(name), &pod.spec) else { return Vec::new() };
        let ended = Ended { replaced: known.alive().is_some_and(|alive| alive.replaced), ..ended };
        known.image = ImageKnown::Unknown;
        let again = !ending && restarts(spec, known.role, &ended);
        let note = again.then(|| back_off(known, pod, name, now)).flatten();
        known.run = Run::Ended(ended);
        note.into_iter().collect()
    }

    fn hooked(&mut self, name: &str, attempt: u32, result: Result<(), String>) -> Vec<Note> {
        let Some(alive) = self.containers.get_mut(name).and_then(|known| known.alive_mut(attempt)) else { return Vec::new() };
        match result {
            Ok(()) => {
                alive.hooked = true;
                Vec::new()
            }
            Err(message) => {
                alive.condemned = Some(Condemned::PostStartHook);
                vec![warning(name, "FailedPostStartHook", message)]
            }
        }
    }

    fn probed(&mut self, name: &str, attempt: u32, kind: ProbeKind, success: bool) -> Vec<Note> {
        let Some(alive) = self.containers.get_mut(name).and_then(|known| known.alive_mut(attempt)) else { return Vec::new() };
        match (kind, success) {
            (ProbeKind::Readiness, ready) => alive.readiness_ok = ready,
            (ProbeKind::Startup, true) => alive.startup_ok = true,
            (ProbeKind::Startup | ProbeKind::Liveness, false) => alive.condemned = Some(Condemned::Probe(kind)),
            (ProbeKind::Liveness, true) => {}
        }
        Vec::new()
    }

    /// Looks at the Pod as it is now: each refused ephemeral container, and the end of a resize, is reported once.
    pub(crate) fn look(&mut self, pod: &Pod) -> Vec<Note> {
        let ephemeral = pod.spec.iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten());
        let new = ephemeral.filter(|container| self.ephemeral_refused.insert(container.name.clone()));
        let mut notes: Vec<Note> =
            new.map(|container| warning(&container.name, "Failed", format!("Error: {}", container::EPHEMERAL_REFUSED))).collect();
        notes.extend(self.resize_completed(pod));
        notes
    }

    /// The Pod was active for longer than it may be.
    pub(crate) fn expire(&mut self) -> Vec<Note> {
        let message = "Pod was active on the node longer than the specified deadline".to_owned();
        self.failure = Some(Failure { reason: "DeadlineExceeded".to_owned(), message: message.clone(), cause: Cause::Deadline });
        vec![Note { container: None, warning: false, reason: "DeadlineExceeded", message }]
    }

    /// The node gets rid of the Pod, unless it is over already.
    pub(crate) fn evict(&mut self, pod: &Pod, eviction: &Eviction) -> Vec<Note> {
        let ended = !self.anything_runs() && pod.spec.as_ref().is_some_and(|spec| self.finished(spec));
        if self.failure.is_some() || self.ended_before || self.gone || ended {
            return Vec::new();
        }
        let (message, cause) = (eviction.message.clone(), Cause::Eviction { disruption: eviction.disruption });
        self.failure = Some(Failure { reason: eviction::REASON.to_owned(), message: message.clone(), cause });
        vec![Note { container: None, warning: true, reason: eviction::REASON, message }]
    }
}

/// Holds a container back after an exit; the note is upstream's, once for each wait.
///
/// Counted from when the exit is learnt: a runtime's clock need not be this one's.
fn back_off(known: &mut Known, pod: &Pod, name: &str, now: Timestamp) -> Option<Note> {
    let until = known.crash.until(now);
    let delay = known.crash.delay();
    known.crash.next(now);
    if until <= now {
        known.hold = None;
        return None;
    }
    let at = PodName::of(pod);
    let message = format!("back-off {} restarting failed container={name} pod={at}", go_duration(delay));
    known.hold = Some(Hold { reason: "CrashLoopBackOff".to_owned(), message, until, turns: None });
    Some(warning(name, "BackOff", format!("Back-off restarting failed container {name} in pod {at}")))
}

fn is_pull_reason(reason: &str) -> bool {
    matches!(reason, "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "InvalidImageName")
}

fn image_of(pod: &Pod, name: &str) -> String {
    container::find(pod, name).and_then(|(_, container)| container.image.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
