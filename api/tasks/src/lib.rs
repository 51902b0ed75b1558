//! Background tasks with an owner.
//!
//! The panic of a task that nobody joins goes unnoticed: it prints a line on standard error, one part of the process
//! stops, and the rest continues. Here, every background task has a name and belongs to a set ([`Tasks`]). The set
//! reports the first task that panics, returns an error, or ends before the set is stopped. The owner of the set then
//! ends with that error, and finally the process ends. The work of one request (a connection, an exec) also has a name,
//! but its panic does not end the process: it is logged and counted.
//!
//! [`accept`] accepts the connections of a server; [`ConnectionLimiter`] limits them and shares them fairly among clients.
//!
//! [`panics`] logs every panic of the process as one line with the task's name, and counts it. [`Pulse`] distinguishes
//! a stuck loop from an idle one. The owner of the set decides what happens after a failure.

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
use std::pin::Pin;
use std::sync::Arc;

use futures::FutureExt as _;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use checks::{Check, HealthReport, report};
pub use connections::{ConnectionLimiter, ConnectionSlot, accept, network};
pub use fault::point as fault_point;
pub use panics::payload_text;
pub use pulse::Pulse;

/// Any error.
type AnyError = dyn Error + Send + Sync;

/// How a task of a set failed.
#[derive(Clone, Debug)]
pub enum TaskFailure {
    /// The task panicked.
    Panicked {
        /// The task's name.
        task: &'static str,
        /// The message of the panic.
        message: String,
    },
    /// The task returned before its set was stopped.
    EndedEarly {
        /// The task's name.
        task: &'static str,
    },
    /// The task returned an error, which is the source of this one.
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

// Implemented by hand: the source is the error itself and not the pointer to it, because callers look for the error's
// type.
impl Error for TaskFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed { error, .. } => Some(&**error),
            Self::Panicked { .. } | Self::EndedEarly { .. } => None,
        }
    }
}

/// The return value of a background task.
pub trait Outcome {
    /// The error, if the task failed.
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

/// A set of tasks with one owner. A clone is the same set.
#[derive(Clone)]
pub struct Tasks {
    shared: Arc<Shared>,
}

struct Shared {
    /// The stop token. A task that ends after its cancellation has not failed.
    stopping: CancellationToken,
    tracker: TaskTracker,
    first: watch::Sender<Option<TaskFailure>>,
}

impl Tasks {
    /// An empty set. Its tasks may end after the token is cancelled. Each task watches the token itself.
    pub fn new(stopping: CancellationToken) -> Self {
        Self { shared: Arc::new(Shared { stopping, tracker: TaskTracker::new(), first: watch::Sender::new(None) }) }
    }

    /// A set within this one, for an owner that waits for a part of the tasks. A failure of the inner set is a failure of
    /// the outer one.
    #[must_use]
    pub fn child(&self) -> Self {
        let Shared { stopping, first, .. } = &*self.shared;
        Self { shared: Arc::new(Shared { stopping: stopping.clone(), tracker: TaskTracker::new(), first: first.clone() }) }
    }

    /// A set like that of [`Tasks::child`], whose tasks may end when `stopping` is cancelled. `stopping` is a child of
    /// this set's token.
    #[must_use]
    pub fn stopped_by(&self, stopping: CancellationToken) -> Self {
        let first = self.shared.first.clone();
        Self { shared: Arc::new(Shared { stopping, tracker: TaskTracker::new(), first }) }
    }

    /// The token that stops the set.
    pub fn stopping(&self) -> &CancellationToken {
        &self.shared.stopping
    }

    /// Spawns a background task that runs until the set is stopped. A panic, an error or an earlier end is a failure of
    /// the set.
    pub fn own<W>(&self, name: &'static str, work: W)
    where
        W: Future + Send + 'static,
        W::Output: Outcome + Send,
    {
        let shared = Arc::clone(&self.shared);
        // Each layer around the work would have room for it twice: a task that lasts for hours should take no more memory than its work.
        let work: Pin<Box<dyn Future<Output = W::Output> + Send>> = Box::pin(work);
        self.shared.tracker.spawn(panics::scope(name, async move {
            let ended = AssertUnwindSafe(fault::or_done(name, work)).catch_unwind().await;
            shared.ended(name, ended.map(|outcome| outcome.and_then(Outcome::error)));
        }));
    }

    /// Like [`Tasks::own`], on a separate thread, for work that blocks.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn own_thread(&self, name: &'static str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let ended = std::panic::catch_unwind(AssertUnwindSafe(|| panics::under_name(name, work)));
            shared.ended(name, ended.map(|()| None));
        });
        thread.map(drop)
    }

    /// Spawns the work of one request. The work may end at any time, and its panic ends no other task.
    pub fn request<W>(&self, name: &'static str, work: W) -> JoinHandle<W::Output>
    where
        W: Future + Send + 'static,
        W::Output: Send,
    {
        self.shared.tracker.spawn(named(name, work))
    }

    /// Waits for the first failure. The future stays pending if no task fails.
    pub async fn failed(&self) -> TaskFailure {
        let mut first = self.shared.first.subscribe();
        if let Ok(found) = first.wait_for(Option::is_some).await
            && let Some(failure) = found.clone()
        {
            return failure;
        }
        std::future::pending().await
    }

    /// The first failure, if any.
    pub fn failure(&self) -> Option<TaskFailure> {
        self.shared.first.borrow().clone()
    }

    /// Waits until every task has ended.
    pub async fn wait(&self) {
        self.shared.tracker.close();
        self.shared.tracker.wait().await;
    }

    /// The number of running tasks.
    pub fn len(&self) -> usize {
        self.shared.tracker.len()
    }

    /// Whether no task runs.
    pub fn is_empty(&self) -> bool {
        self.shared.tracker.is_empty()
    }
}

impl Shared {
    /// Records the end of an owned task, with the payload of its panic or with its error.
    fn ended(&self, task: &'static str, ended: Result<Option<Arc<AnyError>>, Box<dyn Any + Send>>) {
        match ended {
            // The panic hook logs the panic, if one is installed.
            Err(payload) => self.failed(TaskFailure::Panicked { task, message: payload_text(&*payload) }),
            Ok(Some(error)) => self.failed(TaskFailure::Failed { task, error }),
            Ok(None) if self.stopping.is_cancelled() => {}
            Ok(None) => self.failed(TaskFailure::EndedEarly { task }),
        }
    }

    fn failed(&self, failure: TaskFailure) {
        match &failure {
            // The panic hook counts the panic.
            TaskFailure::Panicked { .. } => {}
            TaskFailure::EndedEarly { task } => {
                counts::add(task, "early_end");
                tracing::error!(task, "a background task ended by itself");
            }
            // The owner that waits for the failure reports the error.
            TaskFailure::Failed { task, .. } => counts::add(task, "error"),
        }
        self.first.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(failure);
            is_first
        });
    }
}

/// Names a future for a `JoinSet` of tokio: its panic is logged with the name. See [`joined`].
pub fn named<W: Future>(name: &'static str, work: W) -> impl Future<Output = W::Output> {
    panics::scope(name, fault::or_result(name, work))
}

/// Spawns the work of one request outside of any set. It ends when the other end of its stream or channel is closed. Its
/// panic is logged with its name and counted.
pub fn request<W>(name: &'static str, work: W) -> JoinHandle<W::Output>
where
    W: Future + Send + 'static,
    W::Output: Send,
{
    tokio::spawn(named(name, work))
}

/// Runs a blocking call (files, long computations) outside of the async threads. Its panic is logged with its name and
/// counted.
pub fn blocking<T, F>(name: &'static str, call: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    tokio::task::spawn_blocking(move || panics::under_name(name, call))
}

/// The result of a task of a tokio `JoinSet`; `None` if the task was aborted. A panic of the task resumes in the
/// caller, so that it is not lost.
pub fn joined<T>(ended: Result<T, JoinError>) -> Option<T> {
    match ended {
        Ok(output) => Some(output),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}
