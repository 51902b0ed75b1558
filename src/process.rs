//! The life of a long-running process: it ends when a signal arrives, or when one of its background tasks fails. A
//! cluster without controllers, or a node without its Pod manager, looks healthy and does nothing. When the process
//! ends instead, its supervisor starts it again, and the new process adopts what runs.

use std::pin::pin;
use std::time::Duration;

use api_tasks::Tasks;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// How long the rest may take to stop after a task has failed. What is then cut off would be cut off by a crash too.
const FAILED_STOP_MAX: Duration = Duration::from_millis(500);

/// A running process.
pub struct Process {
    /// Cancelled when everything must stop.
    pub cancel: CancellationToken,
    /// The background tasks. The tasks of the parts are in child sets of this one.
    pub tasks: Tasks,
}

impl Process {
    /// Starts the process' life. `SIGTERM` and `SIGINT` stop it.
    pub fn begin() -> anyhow::Result<Self> {
        crate::host::outlive_pods();
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let cancel = CancellationToken::new();
        let tasks = Tasks::new(cancel.clone());
        let stop = cancel.clone();
        tasks.own("signals", async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = stop.cancelled() => return,
            }
            tracing::info!("stopping");
            stop.cancel();
        });
        #[cfg(debug_assertions)]
        crate::faults::listen(&tasks)?;
        Ok(Self { cancel, tasks })
    }

    /// Runs the work of the process, which must end after `cancel`. The first task that fails stops everything; its
    /// failure is the error.
    pub async fn run(&self, work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
        let mut work = pin!(work);
        let failure = tokio::select! {
            done = &mut work => match self.tasks.failure() {
                None => return done,
                Some(failure) => failure,
            },
            failure = self.tasks.failed() => {
                self.cancel.cancel();
                if tokio::time::timeout(FAILED_STOP_MAX, work).await.is_err() {
                    tracing::debug!("not everything has stopped");
                }
                failure
            }
        };
        Err(failure.into())
    }
}
