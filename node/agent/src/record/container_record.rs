//! The record of one container: its newest instance, the instance before, its image, and why it waits.

use std::sync::Arc;

use jiff::Timestamp;
use node_images::Image;
use runtimes_contract::{ContainerId, Exit, User};

use crate::backoff::Backoff;
use crate::container::Role;
use crate::container::probes::ProbeKind;
use crate::container::resources::InstanceResources;

/// The record of one container.
#[derive(Clone, Debug)]
pub(crate) struct ContainerRecord {
    pub(crate) role: Role,
    /// The number of instances so far; the next one is this attempt.
    pub(crate) attempts: u32,
    pub(crate) run: InstanceState,
    /// The instance before the one in `run`.
    pub(crate) last: Option<ExitedInstance>,
    pub(crate) image: ImageState,
    /// Why it waits, when the status should say so.
    pub(crate) waiting: Option<Waiting>,
    pub(crate) crash: Backoff,
    pub(crate) pulls: Backoff,
    /// Its latest instance ended because all containers of the Pod begin again: it counts as never started.
    pub(crate) reset: bool,
}

impl ContainerRecord {
    pub(crate) fn new(role: Role) -> Self {
        let none = Backoff::default();
        Self {
            role,
            attempts: 0,
            run: InstanceState::Idle,
            last: None,
            image: ImageState::Unknown,
            waiting: None,
            crash: none,
            pulls: none,
            reset: false,
        }
    }

    /// `restartCount`.
    pub(crate) fn restarts(&self) -> u32 {
        self.attempts.saturating_sub(1)
    }

    /// `restartCount` in its status: as upstream, an instance that was removed for its Pod's new beginning is counted by then.
    pub(crate) fn reported_restarts(&self) -> u32 {
        if self.reset { self.attempts } else { self.restarts() }
    }

    /// The running instance.
    pub(crate) fn alive(&self) -> Option<&RunningInstance> {
        match &self.run {
            InstanceState::Running(alive) => Some(alive),
            _ => None,
        }
    }

    /// The running instance of that attempt: reports of an earlier one are ignored.
    pub(crate) fn alive_mut(&mut self, attempt: u32) -> Option<&mut RunningInstance> {
        match &mut self.run {
            InstanceState::Running(alive) if alive.attempt == attempt => Some(alive),
            _ => None,
        }
    }

    /// Whether the latest instance was ended so that another follows, and that one does not run yet.
    pub(crate) fn is_replaced(&self) -> bool {
        self.latest_end().is_some_and(|ended| ended.replaced)
    }

    /// How the latest instance ended, if it has, also while the next one is being started.
    pub(crate) fn latest_end(&self) -> Option<&ExitedInstance> {
        match &self.run {
            InstanceState::Ended(ended) | InstanceState::Starting { before: Some(ended) } => Some(ended),
            InstanceState::Running(_) | InstanceState::Starting { before: None } | InstanceState::Idle => None,
        }
    }

    /// How the latest instance ended, if it has.
    pub(crate) fn ended(&self) -> Option<&ExitedInstance> {
        match &self.run {
            InstanceState::Ended(ended) => Some(ended),
            _ => None,
        }
    }
}

/// The state of a container's newest instance.
#[derive(Clone, Debug)]
pub(crate) enum InstanceState {
    /// Never begun. → `Starting` by `Step::Start`.
    Idle,
    /// Being created and started; holds how the instance before it ended. → `Running`; or `Ended` when it was created and did
    /// not start; or back when it could not be created.
    Starting {
        /// The instance before.
        before: Option<ExitedInstance>,
    },
    /// Its process runs. → `Ended` by the report of its exit.
    Running(RunningInstance),
    /// Its process has ended. → `Starting` by `Step::Start` if it is to run again.
    Ended(ExitedInstance),
}

/// A running instance.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunningInstance {
    pub(crate) id: ContainerId,
    pub(crate) handler: String,
    pub(crate) attempt: u32,
    pub(crate) started_at: Timestamp,
    pub(crate) image_id: String,
    pub(crate) hash: String,
    /// The resources of the instance.
    pub(crate) resources: InstanceResources,
    /// The user and groups that it began with.
    pub(crate) user: User,
    /// The startup probe has succeeded, or there is none.
    pub(crate) startup_ok: bool,
    /// The readiness probe succeeds, or there is none.
    pub(crate) readiness_ok: bool,
    /// The postStart hook has ended, or there is none.
    pub(crate) hooked: bool,
    /// The check that it failed, so that it must be ended.
    pub(crate) condemned: Option<Condemned>,
    /// It is being ended.
    pub(crate) stopping: bool,
    /// It is being ended so that another instance follows, whatever its exit code is.
    pub(crate) replaced: bool,
}

/// The check that a running instance failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condemned {
    /// The postStart hook.
    PostStartHook,
    /// A startup or liveness probe.
    Probe(ProbeKind),
}

impl RunningInstance {
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
pub(crate) struct ExitedInstance {
    pub(crate) id: Option<String>,
    pub(crate) image_id: String,
    pub(crate) exit_code: i32,
    pub(crate) signal: Option<i32>,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The user and groups that it began with, as far as they are recorded.
    pub(crate) user: Option<User>,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Timestamp,
    /// The node ended it so that another instance follows: its exit code does not count.
    pub(crate) replaced: bool,
}

impl ExitedInstance {
    /// From the runtime's exit status, with upstream's reasons. `message` is the termination message.
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
            user: None,
            started_at,
            finished_at: finished.unwrap_or_else(api_clock::now),
            replaced: false,
        }
    }

    /// The same with the user that it began with.
    pub(crate) fn of_user(self, user: User) -> Self {
        Self { user: Some(user), ..self }
    }

    /// Whether it has done its work.
    pub(crate) fn is_success(&self) -> bool {
        self.exit_code == 0 && !self.replaced
    }

    /// An instance that no runtime has any more; upstream's words.
    pub(crate) fn lost(id: Option<String>, image_id: String, started_at: Option<Timestamp>, now: Timestamp) -> Self {
        Self {
            id,
            image_id,
            exit_code: 137,
            signal: None,
            reason: "ContainerStatusUnknown".to_owned(),
            message: "The container could not be located when the pod was terminated".to_owned(),
            user: None,
            started_at,
            finished_at: now,
            replaced: false,
        }
    }
}

/// Whether a container's image is on the node.
#[derive(Clone, Debug)]
pub(crate) enum ImageState {
    /// Not checked for the next instance. → `Pulling` by `Step::Pull`.
    Unknown,
    /// Being fetched. → `Ready`, or back to `Unknown` with a hold.
    Pulling,
    /// The image is present.
    Ready(Arc<Image>),
}

/// Why a container waits: `state.waiting`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) reason: String,
    pub(crate) message: String,
    /// When to try again.
    pub(crate) until: Timestamp,
    /// When `ErrImagePull` becomes `ImagePullBackOff`.
    pub(crate) backs_off_at: Option<Timestamp>,
}
