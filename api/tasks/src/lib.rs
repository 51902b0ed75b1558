//! Background tasks that somebody owns.
//!
//! A task that nobody joins dies alone: its panic is a line on standard error, its part of the process stands still,
//! and everything else goes on as if nothing had happened. Here every background task has a name and belongs to a
//! set. A set reports the first of its tasks that panics, returns an error, or ends before the set is stopped; the
//! owner of the set ends with that error, and so at last does the process. Work that belongs to one request (a
//! connection, one exec) is named as well, and may die alone: its panic is logged and counted.
//!
//! [`ConnectionLimiter`] limits the connections of a server and shares them fairly among clients.
//!
//! [`panics`] logs every panic of the process as one line with the task's name and counts it; [`Pulse`] tells a loop
//! that stands still from one that has nothing to do. What happens after a failure is left to the owner of the set.

mod checks;
mod connections;
mod counts;
#[cfg(debug_assertions)]
pub mod fault;
#[cfg(not(debug_assertions))]
#[path = "fault/absent.rs"]
mod fault;
pub mod panics;
mod pulse;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use checks::{Check, report};
pub use connections::{ConnectionLimiter, ConnectionSlot};
pub use counts::{metrics, publish_metrics};
pub use fault::point as fault_point;
pub use panics::payload_text;
pub use pulse::Pulse;

/// An error of any kind.
type AnyError = dyn Error + Send + Sync;

/// How a task of a set failed.
#[derive(Clone, Debug)]
pub enum TaskFailure {
    /// It panicked.
    Panicked {
        /// The task's name.
        task: &'static str,
        /// What the panic says.
        message: String,
    },
    /// It returned before its set was stopped.
    EndedEarly {
        /// The task's name.
        task: &'static str,
    },
    /// It returned an error, which is the source of this one.
    Failed {
        /// The task's name.
        task: &'static str,
        /// The error.
        error: Arc<AnyError>,
    },
}

impl TaskFailure {
    /// The name of the task that failed.
    pub fn task(&self) -> &'static str {
        match self {
            Self::Panicked { task, .. } | Self::EndedEarly { task } | Self::Failed { task, .. } => task,
        }
    }
}

impl fmt::Display for TaskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked { task, message } => write!(f, "task {task} panicked: {message}"),
            Self::EndedEarly { task } => write!(f, "task {task} ended by itself"),
            Self::Failed { task, .. } => write!(f, "task {task} failed"),
        }
    }
}

// By hand: the source is the error itself, whose type others look for, and not the pointer to it.
impl Error for TaskFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed { error, .. } => Some(&**error),
            Self::Panicked { .. } | Self::EndedEarly { .. } => None,
        }
    }
}

/// What a background task may return.
pub trait Outcome {
    /// The error, if it is one.
    fn error(self) -> Option<Arc<AnyError>>;
}

impl Outcome for () {
    fn error(self) -> Option<Arc<AnyError>> {
        None
    }
}

impl<E: Into<Box<AnyError>>> Outcome for Result<(), E> {
    fn error(self) -> Option<Arc<AnyError>> {
        self.err().map(|error| Arc::from(error.into()))
    }
}

/// A set of tasks with one owner; clones are the same set.
#[derive(Clone)]
pub struct Tasks {
    shared: Arc<Shared>,
}

struct Shared {
    /// Tasks that end after this was cancelled end as they should.
    stopping: CancellationToken,
    tracker: TaskTracker,
    first: watch::Sender<Option<TaskFailure>>,
}

impl Tasks {
    /// An empty set. Its tasks may end once the token is cancelled, and not before; telling them to is left to them.
    pub fn new(stopping: CancellationToken) -> Self {
        Self { shared: Arc::new(Shared { stopping, tracker: TaskTracker::new(), first: watch::Sender::new(None) }) }
    }

    /// A set within this one, for an owner that waits for a part of the tasks: a failure of the one is a failure of the
    /// other.
    #[must_use]
    pub fn child(&self) -> Self {
        let Shared { stopping, first, .. } = &*self.shared;
        Self { shared: Arc::new(Shared { stopping: stopping.clone(), tracker: TaskTracker::new(), first: first.clone() }) }
    }

    /// A set as [`Tasks::child`] makes it, whose tasks may end as soon as `stopping` is cancelled. That token is a child of
    /// this set's own.
    #[must_use]
    pub fn stopped_by(&self, stopping: CancellationToken) -> Self {
        let first = self.shared.first.clone();
        Self { shared: Arc::new(Shared { stopping, tracker: TaskTracker::new(), first }) }
    }

    /// What stops the set.
    pub fn stopping(&self) -> &CancellationToken {
        &self.shared.stopping
    }

    /// Spawns a background task, which runs until the set is stopped: a panic, an error, or an earlier end is a failure
    /// of the set.
    pub fn own<W>(&self, name: &'static str, work: W)
    where
        W: Future + Send + 'static,
        W::Output: Outcome + Send,
    {
        let shared = Arc::clone(&self.shared);
        self.shared.tracker.spawn(panics::scope(name, async move {
            let ended = AssertUnwindSafe(fault::or_done(name, work)).catch_unwind().await;
            shared.ended(name, ended.map(|outcome| outcome.and_then(Outcome::error)));
        }));
    }

    /// As [`Tasks::own`], for work that blocks for as long as it runs: a thread of its own.
    ///
    /// # Errors
    /// When there is no room for another thread.
    pub fn own_thread(&self, name: &'static str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let ended = std::panic::catch_unwind(AssertUnwindSafe(|| panics::under_name(name, work)));
            shared.ended(name, ended.map(|()| None));
        });
        thread.map(drop)
    }

    /// Spawns work that belongs to one request. It may end when it likes; its panic ends nothing else.
    pub fn request<W>(&self, name: &'static str, work: W) -> JoinHandle<W::Output>
    where
        W: Future + Send + 'static,
        W::Output: Send,
    {
        self.shared.tracker.spawn(named(name, work))
    }

    /// Waits for the first failure; for ever where there is none.
    pub async fn failed(&self) -> TaskFailure {
        let mut first = self.shared.first.subscribe();
        if let Ok(found) = first.wait_for(Option::is_some).await
            && let Some(failure) = found.clone()
        {
            return failure;
        }
        std::future::pending().await
    }

    /// The first failure, if there was one.
    pub fn failure(&self) -> Option<TaskFailure> {
        self.shared.first.borrow().clone()
    }

    /// Waits until every task has ended.
    pub async fn wait(&self) {
        self.shared.tracker.close();
        self.shared.tracker.wait().await;
    }

    /// Tasks that run.
    pub fn len(&self) -> usize {
        self.shared.tracker.len()
    }

    /// Whether no task runs.
    pub fn is_empty(&self) -> bool {
        self.shared.tracker.is_empty()
    }
}

impl Shared {
    /// Takes the end of an owned task: a panic's payload, or an error if there is one.
    fn ended(&self, task: &'static str, ended: Result<Option<Arc<AnyError>>, Box<dyn Any + Send>>) {
        match ended {
            // Logged by the panic hook, where one is installed.
            Err(payload) => self.failed(TaskFailure::Panicked { task, message: payload_text(&*payload) }),
            Ok(Some(error)) => self.failed(TaskFailure::Failed { task, error }),
            Ok(None) if self.stopping.is_cancelled() => {}
            Ok(None) => self.failed(TaskFailure::EndedEarly { task }),
        }
    }

    fn failed(&self, failure: TaskFailure) {
        match &failure {
            // Counted where it is logged.
            TaskFailure::Panicked { .. } => {}
            TaskFailure::EndedEarly { task } => {
                counts::add(task, "early_end");
                tracing::error!(task, "a background task ended by itself");
            }
            // Who awaits the failure has the error, and says it.
            TaskFailure::Failed { task, .. } => counts::add(task, "error"),
        }
        self.first.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(failure);
            is_first
        });
    }
}

/// The same work under a name, for a set that its owner joins (a tokio `JoinSet`): a panic in it is logged with the
/// name. See [`joined`].
pub fn named<W: Future>(name: &'static str, work: W) -> impl Future<Output = W::Output> {
    panics::scope(name, fault::or_result(name, work))
}

/// Spawns work that belongs to one request and to no set: whoever holds what it answers to (a stream, a channel) ends
/// it. Its panic is logged with its name, and counted.
pub fn request<W>(name: &'static str, work: W) -> JoinHandle<W::Output>
where
    W: Future + Send + 'static,
    W::Output: Send,
{
    tokio::spawn(named(name, work))
}

/// Runs a call that blocks (files, long computations) away from the async threads. A panic in it is logged with its
/// name, and counted.
pub fn blocking<T, F>(name: &'static str, call: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    tokio::task::spawn_blocking(move || panics::under_name(name, call))
}

/// What a task of a set of one's own (a tokio `JoinSet`) came to; its panic goes on in whoever joins it, so that it does
/// not die alone. `None` when it was aborted.
pub fn joined<T>(ended: Result<T, JoinError>) -> Option<T> {
    match ended {
        Ok(output) => Some(output),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}
