//! Ending an instance: its preStop hook, its stop signal, and `SIGKILL` when the time is over.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Container;
use nix::sys::signal::Signal;
use runtimes_contract::{Runtime, RuntimeError};
use tokio::sync::watch;

use super::Effects;
use crate::cleanup;
use crate::container;
use crate::error::chain;
use crate::hooks;
use crate::kubelet_metrics::Operation;
use crate::record::RunningInstance;

/// How long a killed container may take to end before it is killed again.
const KILL_SETTLES: Duration = Duration::from_secs(10);
/// The least time of an instance between its stop signal and `SIGKILL`, however long its hook took; upstream's
/// `minimumGracePeriodInSeconds`.
pub(crate) const SIGNAL_HEARD: SignedDuration = SignedDuration::from_secs(2);

/// When an instance must be gone, by the steady clock.
pub(crate) struct Deadline {
    /// By its own restart.
    pub(crate) own: Timestamp,
    /// The deadline by a restart of all containers, which may begin while the instance is being ended.
    pub(crate) of_restart: watch::Receiver<Timestamp>,
    /// The deadline of its Pod, which may begin during a restart, and may still become shorter.
    pub(crate) of_pod: watch::Receiver<Timestamp>,
    /// The stop signal gets no further time: the Pod is evicted at once.
    pub(crate) at_once: bool,
    /// The preStop hook does not run.
    pub(crate) without_hook: bool,
}

impl Deadline {
    /// Runs a future until the deadline, but at least until `least`; `None` when the time was over first.
    async fn bound<T>(&mut self, least: Timestamp, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            let shared = (*self.of_restart.borrow_and_update()).min(*self.of_pod.borrow_and_update());
            let by = self.own.min(shared).max(least);
            let wait = api_clock::between(api_clock::steady(), by);
            tokio::select! {
                done = &mut work => return Some(done),
                () = tokio::time::sleep(wait) => return None,
                Ok(()) = self.of_restart.changed() => {}
                Ok(()) = self.of_pod.changed() => {}
            }
        }
    }
}

impl Effects {
    /// Ends an instance. Its end is reported by [`Effects::wait`].
    pub(crate) async fn stop(self, name: String, alive: RunningInstance, mut deadline: Deadline) {
        let Some(runtime) = self.node.parts.by_handler(&alive.handler).cloned() else { return };
        let found = container::find_any(&self.pod, &name).map(|(_, container)| container);
        let found = found.as_deref();
        let hook = found.and_then(|container| Some((container, container.lifecycle.as_ref()?.pre_stop.as_ref()?)));
        let hook = hook.filter(|_| !deadline.without_hook);
        if let Some((container, handler)) = hook {
            let run = hooks::run(&self.node, &self.pod, container, handler, &alive);
            match deadline.bound(Timestamp::MIN, run).await {
                Some(Err(error)) => {
                    self.node.note(&self.pod, Some(&name), true, "FailedPreStopHook", format!("PreStopHook failed: {}", chain(&error)))
                }
                Some(Ok(())) => {}
                None => tracing::info!(container = %alive.id, "preStop hook did not end in time"),
            }
        }
        let signal = self.stop_signal(found).await;
        let stop = self.end(runtime.as_ref(), &alive, signal, deadline);
        self.node.kubelet_metrics.operations.measure(Operation::StopContainer, stop).await.ok();
    }

    /// CRI's `StopContainer`. The error is that of a signal: the container has ended all the same.
    async fn end(&self, runtime: &dyn Runtime, alive: &RunningInstance, signal: i32, mut deadline: Deadline) -> Result<(), RuntimeError> {
        let mut result = Ok(());
        if let Err(error) = runtime.signal(&alive.id, signal).await {
            tracing::warn!(container = %alive.id, error = chain(&error), "stop signal not sent");
            result = Err(error);
        }
        let heard = if deadline.at_once { SignedDuration::ZERO } else { SIGNAL_HEARD };
        let least = api_clock::steady().checked_add(heard).unwrap_or(Timestamp::MAX);
        if deadline.bound(least, runtime.wait(&alive.id)).await.is_some() {
            return result;
        }
        // Waits until it has ended: a process that hangs in the kernel now may end later.
        loop {
            if let Err(error) = runtime.signal(&alive.id, Signal::SIGKILL as i32).await {
                tracing::warn!(container = %alive.id, error = chain(&error), "SIGKILL not sent");
                result = Err(error);
            }
            if tokio::time::timeout(KILL_SETTLES, runtime.wait(&alive.id)).await.is_ok() {
                return result;
            }
            tracing::warn!(container = %alive.id, "container outlived SIGKILL, removing it");
            if let Err(error) = cleanup::remove_everywhere(&self.node, &alive.id).await {
                tracing::warn!(container = %alive.id, error = chain(&error), "container not removed");
            }
        }
    }

    /// The container's own stop signal, else the image's, else `SIGTERM`.
    async fn stop_signal(&self, container: Option<&Container>) -> i32 {
        let own = container.and_then(|container| container.lifecycle.as_ref()?.stop_signal.clone());
        let reference = container.and_then(|container| container.image.clone()).unwrap_or_default();
        let name = match own {
            Some(name) => Some(name),
            None => self.node.parts.images.get(&reference).await.ok().flatten().map(|image| image.config.stop_signal),
        };
        name.and_then(|name| hooks::signal_number(&name)).unwrap_or(Signal::SIGTERM as i32)
    }
}
