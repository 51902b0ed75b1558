//! What a Pod's worker knows: one value, changed only by the worker itself when something is reported
//! ([`super::learn`]) or begun. The enums are the states of a Pod on its node; each arrow between
//! them is named where it is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use node_images::Image;
use runtimes_contract::{ContainerId, Exit, Sandbox};

use crate::backoff::Backoff;
use crate::container::probes::ProbeKind;
use crate::container::{self, Role, resources};
use crate::resize::{self, Allocation, Pending};

/// Everything that the next step depends on, beside the Pod and the clock.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Namespaces, address, volumes, files and cgroup.
    pub(crate) base: Base,
    /// The containers by name.
    pub(crate) containers: BTreeMap<String, Known>,
    /// The API has no such Pod any more.
    pub(crate) gone: bool,
    /// Why the Pod as a whole has failed.
    pub(crate) failure: Option<Failure>,
    /// The phase that the Pod had ended with when this worker began; nothing changes any more.
    pub(crate) ended_before: bool,
    /// Whether what the Pod had on the node is freed.
    pub(crate) clean: Clean,
    /// Whether that went, or goes, for its logs too. They stay for as long as the API has the Pod.
    pub(crate) logs_forgotten: bool,
    /// The volumes are being looked at: freeing them now would leave behind what that look makes.
    pub(crate) refreshing: bool,
    /// When the worker first saw that the Pod has to end.
    pub(crate) ending_since: Option<Timestamp>,
    /// The final status and the deletion were handed to the status writer.
    pub(crate) delete_sent: bool,
    /// `status.startTime`.
    pub(crate) started_at: Timestamp,
    /// Failures in a row to make the base or to clean up.
    pub(crate) faults: Backoff,
    /// What the containers were allocated.
    pub(crate) allocation: Allocation,
    /// Why they are not allocated what the spec asks for by now.
    pub(crate) pending: Option<Pending>,
    /// Whether what runs has what it was allocated.
    pub(crate) resize: Resize,
    /// A resize has begun and its end was not reported yet.
    pub(crate) resizing: bool,
    /// Ephemeral containers of which people were told that they are not run.
    pub(crate) ephemeral_refused: BTreeSet<String>,
}

/// What the containers stand on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// Not asked for yet. → `Making` by `Step::Prepare`.
    Absent,
    /// Being made. → `Ready` or `Failed` by the report.
    Making,
    /// There.
    Ready(Ground),
    /// Could not be made. → `Making` by `Step::Prepare` after `until`.
    Failed {
        /// When to try again.
        until: Timestamp,
    },
}

/// A Pod's namespaces and address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ground {
    pub(crate) sandbox: Sandbox,
    pub(crate) ip: IpAddr,
    /// When the volumes want to be looked at again (a token is due).
    pub(crate) volumes_due: Option<Timestamp>,
    /// The Pod's RuntimeClass and its handler.
    pub(crate) class: Option<(String, String)>,
}

/// Whether the Pod's traces are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clean {
    /// No. → `Busy` by `Step::Clean` once nothing runs.
    Not,
    /// Being removed. → `Done` or `Failed` by the report.
    Busy,
    /// Yes.
    Done,
    /// Something could not be removed. → `Busy` by `Step::Clean` after `until`.
    Failed {
        /// When to try again.
        until: Timestamp,
    },
}

/// Whether a changed allocation has reached the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resize {
    /// Yes. → `Due` by a new allocation.
    Settled,
    /// No. → `Busy` by `Step::Resize` after `until`.
    Due {
        /// When to try.
        until: Timestamp,
        /// Why it failed before.
        fault: Option<String>,
    },
    /// On its way. → `Settled` or `Due` by the report.
    Busy {
        /// There has been another allocation since.
        again: bool,
    },
}

impl Resize {
    /// There is a new allocation.
    pub(crate) fn ask(&mut self, now: Timestamp) {
        *self = match self {
            Self::Busy { .. } => Self::Busy { again: true },
            Self::Settled | Self::Due { .. } => Self::Due { until: now, fault: None },
        };
    }
}

/// Why a Pod as a whole has failed: `status.reason` and `status.message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) cause: Cause,
}

/// Who has ended the Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Turned away at the door: its containers never were.
    Rejection,
    /// Its deadline.
    Deadline,
    /// The node has evicted it.
    Eviction {
        /// For its own sake, which is a disruption.
        disruption: bool,
    },
}

impl Failure {
    /// Whether the Pod was never taken in.
    pub(crate) fn is_rejection(&self) -> bool {
        self.cause == Cause::Rejection
    }

    /// Whether the node got rid of it.
    pub(crate) fn is_eviction(&self) -> bool {
        matches!(self.cause, Cause::Eviction { .. })
    }
}

/// One container as the worker knows it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) role: Role,
    /// Instances made so far; the next one is this attempt.
    pub(crate) attempts: u32,
    pub(crate) run: Run,
    /// The instance before the one in `run`.
    pub(crate) last: Option<Ended>,
    pub(crate) image: ImageKnown,
    /// Why it waits, where that is worth saying.
    pub(crate) hold: Option<Hold>,
    pub(crate) crash: Backoff,
    pub(crate) pulls: Backoff,
}

impl Known {
    pub(crate) fn new(role: Role) -> Self {
        let none = Backoff::default();
        Self { role, attempts: 0, run: Run::Idle, last: None, image: ImageKnown::Unknown, hold: None, crash: none, pulls: none }
    }

    /// `restartCount`.
    pub(crate) fn restarts(&self) -> u32 {
        self.attempts.saturating_sub(1)
    }

    /// The running instance.
    pub(crate) fn alive(&self) -> Option<&Alive> {
        match &self.run {
            Run::Running(alive) => Some(alive),
            _ => None,
        }
    }

    /// The running instance of that attempt: reports of an earlier one come to nothing.
    pub(crate) fn alive_mut(&mut self, attempt: u32) -> Option<&mut Alive> {
        match &mut self.run {
            Run::Running(alive) if alive.attempt == attempt => Some(alive),
            _ => None,
        }
    }

    /// Whether the latest instance was ended so that another follows, and that one does not run yet.
    pub(crate) fn is_replaced(&self) -> bool {
        match &self.run {
            Run::Ended(ended) | Run::Starting { before: Some(ended) } => ended.replaced,
            Run::Running(_) | Run::Starting { before: None } | Run::Idle => false,
        }
    }

    /// How the latest instance ended, if it has.
    pub(crate) fn ended(&self) -> Option<&Ended> {
        match &self.run {
            Run::Ended(ended) => Some(ended),
            _ => None,
        }
    }
}

/// Where a container is.
#[derive(Clone, Debug)]
pub(crate) enum Run {
    /// Never begun. → `Starting` by `Step::Start`.
    Idle,
    /// Being made and started; holds how the instance before it ended. → `Running`, or `Ended` when
    /// it was made and did not start, or back when it could not be made.
    Starting {
        /// The instance before.
        before: Option<Ended>,
    },
    /// Its process runs. → `Ended` by the report of its exit.
    Running(Alive),
    /// Its process has ended. → `Starting` by `Step::Start` if it is to run again.
    Ended(Ended),
}

/// A running instance.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Alive {
    pub(crate) id: ContainerId,
    pub(crate) handler: String,
    pub(crate) attempt: u32,
    pub(crate) started_at: Timestamp,
    pub(crate) image_id: String,
    pub(crate) hash: String,
    /// What it has.
    pub(crate) resources: ResourceRequirements,
    /// The startup probe has succeeded, or there is none.
    pub(crate) startup_ok: bool,
    /// The readiness probe succeeds, or there is none.
    pub(crate) readiness_ok: bool,
    /// The postStart hook is over, or there is none.
    pub(crate) hooked: bool,
    /// What it did not pass, so that it has to be ended.
    pub(crate) condemned: Option<Condemned>,
    /// It is being ended.
    pub(crate) stopping: bool,
    /// It is being ended so that another instance follows, whatever its exit code will be.
    pub(crate) replaced: bool,
}

/// What a running instance did not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condemned {
    /// The postStart hook.
    PostStartHook,
    /// A startup or liveness probe.
    Probe(ProbeKind),
}

impl Alive {
    /// `started` in its status.
    pub(crate) fn started(&self) -> bool {
        self.startup_ok && self.hooked
    }

    /// `ready` in its status.
    pub(crate) fn ready(&self) -> bool {
        self.started() && self.readiness_ok && !self.stopping
    }
}

/// How an instance ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) id: Option<String>,
    pub(crate) image_id: String,
    pub(crate) exit_code: i32,
    pub(crate) signal: Option<i32>,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Timestamp,
    /// The node ended it so that another instance follows: its exit code does not count.
    pub(crate) replaced: bool,
}

impl Ended {
    /// From what the runtime says, with upstream's reasons. `message` is the termination message.
    pub(crate) fn from_exit(id: &ContainerId, image_id: &str, started_at: Option<Timestamp>, exit: &Exit, message: String) -> Self {
        let reason = match exit.code {
            _ if exit.oom_killed => "OOMKilled",
            0 => "Completed",
            _ => "Error",
        };
        let finished = i64::try_from(exit.finished_at_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        Self {
            id: Some(id.0.clone()),
            image_id: image_id.to_owned(),
            exit_code: exit.code,
            signal: exit.signal,
            reason: reason.to_owned(),
            message: if message.is_empty() { exit.message.clone() } else { message },
            started_at,
            finished_at: finished.unwrap_or_else(Timestamp::now),
            replaced: false,
        }
    }

    /// An instance that no runtime knows any more; upstream's words.
    pub(crate) fn lost(id: Option<String>, image_id: String, started_at: Option<Timestamp>, now: Timestamp) -> Self {
        Self {
            id,
            image_id,
            exit_code: 137,
            signal: None,
            reason: "ContainerStatusUnknown".to_owned(),
            message: "The container could not be located when the pod was terminated".to_owned(),
            started_at,
            finished_at: now,
            replaced: false,
        }
    }
}

/// Whether a container's image is on the node.
#[derive(Clone, Debug)]
pub(crate) enum ImageKnown {
    /// Not looked at for the next instance. → `Pulling` by `Step::Pull`.
    Unknown,
    /// Being fetched. → `Ready`, or back to `Unknown` with a hold.
    Pulling,
    /// There.
    Ready(Arc<Image>),
}

/// Why a container waits: `state.waiting`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) reason: String,
    pub(crate) message: String,
    /// When to try again.
    pub(crate) until: Timestamp,
    /// When `ErrImagePull` becomes `ImagePullBackOff`.
    pub(crate) turns: Option<Timestamp>,
}

impl Facts {
    /// A Pod that has never been seen.
    pub(crate) fn new(pod: &Pod, now: Timestamp) -> Self {
        let containers =
            pod.spec.iter().flat_map(container::all).map(|(role, container)| (container.name.clone(), Known::new(role))).collect();
        let started_at = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map_or(now, |time| time.0);
        let told = pod.status.as_ref().and_then(|status| status.ephemeral_container_statuses.as_ref());
        Self {
            base: Base::Absent,
            containers,
            gone: false,
            failure: None,
            ended_before: false,
            clean: Clean::Not,
            logs_forgotten: false,
            refreshing: false,
            ending_since: None,
            delete_sent: false,
            started_at,
            faults: Backoff::default(),
            allocation: resize::remembered(pod),
            pending: resize::told(pod),
            resize: Resize::Settled,
            resizing: false,
            ephemeral_refused: told.into_iter().flatten().map(|status| status.name.clone()).collect(),
        }
    }

    /// The Pod's ground, once it is there.
    pub(crate) fn ground(&self) -> Option<&Ground> {
        match &self.base {
            Base::Ready(ground) => Some(ground),
            _ => None,
        }
    }

    /// Whether any of `spec.containers` was ever begun: init containers are not looked at again.
    pub(crate) fn main_begun(&self) -> bool {
        self.containers.values().any(|known| known.role == Role::Main && (known.attempts > 0 || !matches!(known.run, Run::Idle)))
    }

    /// Whether nothing is left to run, by the Pod's own doing.
    pub(crate) fn finished(&self, spec: &PodSpec) -> bool {
        let known = |container: &Container| self.containers.get(&container.name);
        let over =
            |role: Role, container: &Container| known(container).and_then(Known::ended).is_some_and(|ended| !restarts(spec, role, ended));
        let init_failed = !self.main_begun()
            && container::all(spec).any(|(role, container)| {
                let failed = known(container).and_then(Known::ended).is_some_and(|ended| ended.exit_code != 0);
                role == Role::Init && failed && over(role, container)
            });
        init_failed || container::all(spec).filter(|(role, _)| *role == Role::Main).all(|(role, container)| over(role, container))
    }

    /// Whether the Pod has to end, for whatever reason.
    pub(crate) fn ends(&self, pod: &Pod) -> bool {
        let finished = pod.spec.as_ref().is_some_and(|spec| self.finished(spec));
        self.gone || self.ended_before || self.failure.is_some() || pod.metadata.deletion_timestamp.is_some() || finished
    }

    /// Whether nobody can ask for the Pod's logs any more. Those of an evicted Pod may be what filled the disk.
    pub(crate) fn forgets_logs(&self, pod: &Pod) -> bool {
        self.failure.as_ref().is_some_and(Failure::is_eviction) || self.gone || pod.metadata.deletion_timestamp.is_some()
    }

    /// Whether something that runs, or that was ended for its resize, lacks what it was allocated.
    pub(crate) fn lags(&self, pod: &Pod) -> bool {
        let lags = |container: &Container| {
            let Some(known) = self.containers.get(&container.name) else { return false };
            let differs = |alive: &Alive| resources::change(Some(&alive.resources), container.resources.as_ref()).any();
            known.alive().map_or_else(|| self.resizing && known.is_replaced(), differs)
        };
        self.resize != Resize::Settled || pod.spec.iter().flat_map(container::all).any(|(_, container)| lags(container))
    }

    /// Whether any process of the Pod runs or may come to run.
    pub(crate) fn anything_runs(&self) -> bool {
        self.containers.values().any(|known| matches!(known.run, Run::Running(_) | Run::Starting { .. }))
    }
}

/// Whether an ended instance is followed by another, by role and `restartPolicy`.
pub(crate) fn restarts(spec: &PodSpec, role: Role, ended: &Ended) -> bool {
    let policy = spec.restart_policy.as_deref().unwrap_or("Always");
    if ended.replaced {
        return true;
    }
    match (role, policy) {
        (Role::Sidecar, _) => true,
        (Role::Init, "Never") => false,
        (Role::Init, _) => ended.exit_code != 0,
        (Role::Main, "Always") => true,
        (Role::Main, "OnFailure") => ended.exit_code != 0,
        (Role::Main, _) => false,
    }
}

/// Whether a container is of a Pod that restarts it, for readers of the status.
pub(crate) fn will_restart(pod: &Pod, known: &Known) -> bool {
    let spec = pod.spec.as_ref();
    spec.is_some_and(|spec| known.ended().is_some_and(|ended| restarts(spec, known.role, ended)))
}
