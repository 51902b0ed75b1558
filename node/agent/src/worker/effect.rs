//! The effects of a worker's steps. Each effect is a task that ends with one report; none decides the next step. One file a
//! group of steps: [`sandbox`], [`runtime_class`], [`pause`], [`pull`], [`prepare`], [`cpus`], [`devices`], [`start`], [`stop`], [`resize`] and [`free`].

mod cpus;
mod devices;
mod free;
mod pause;
mod prepare;
mod pull;
mod resize;
mod runtime_class;
mod sandbox;
mod start;
mod stop;
mod termination_message;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Probe};
use node_volumes::VolumeError;
use runtimes_contract::RuntimeError;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub(crate) use start::NextInstance;
pub(crate) use stop::{Deadline, SIGNAL_HEARD};
pub(crate) use termination_message::TerminationMessage;

use crate::action;
use crate::container;
use crate::container::probes::ProbeKind;
use crate::error::chain;
use crate::hooks;
use crate::node::Node;
use crate::probe;
use crate::probe_results::ProbeResults;
use crate::record::{ExitedInstance, RunningInstance};
use crate::static_pods::Origin;
use crate::worker::learn::Report;

/// The wait after a runtime could not report how a container ended.
const WAIT_RETRY: Duration = Duration::from_secs(1);

/// Performs steps for one Pod.
#[derive(Clone)]
pub(crate) struct Effects {
    pub(crate) node: Arc<Node>,
    pub(crate) pod: Arc<Pod>,
    pub(crate) origin: Origin,
    /// Boxed: a channel has room for several reports from the start, and each Pod has a channel.
    pub(crate) reports: mpsc::Sender<Box<Report>>,
    /// Cancelled when the Pod is to end: then nothing waits for what only a start needs.
    pub(crate) ending: CancellationToken,
    pub(crate) probe_results: Arc<ProbeResults>,
}

impl Effects {
    async fn report(&self, report: Report) {
        send(&self.reports, report).await;
    }

    /// For a task that waits as long as a container runs: meanwhile the Pod changes, and the task would hold an old one.
    fn without_pod(self) -> (Arc<Node>, mpsc::Sender<Box<Report>>) {
        (self.node, self.reports)
    }

    /// Runs the postStart hook.
    pub(crate) async fn post_start(self, name: String, alive: RunningInstance) {
        let Some((_, container)) = container::find(&self.pod, &name) else { return };
        let Some(handler) = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref()) else { return };
        let result = hooks::run(&self.node, &self.pod, container, handler, &alive).await;
        self.report(Report::Hooked(name, alive.attempt, result)).await;
    }

    /// Waits for an instance's end and reads its termination message.
    pub(crate) async fn wait(self, name: String, alive: RunningInstance) {
        let source = TerminationMessage::of(&self.pod, &name, alive.attempt);
        let (node, reports) = self.without_pod();
        let Some(runtime) = node.parts.by_handler(&alive.handler).cloned() else { return };
        let ended = loop {
            match runtime.wait(&alive.id).await {
                Ok(exit) => {
                    // Boxed as what is rare.
                    let message = Box::pin(source.read(&node, exit.code)).await;
                    break ExitedInstance::from_exit(&alive.id, &alive.image_id, Some(alive.started_at), &exit, message);
                }
                Err(RuntimeError::NotFound(_)) => {
                    break ExitedInstance::lost(Some(alive.id.0.clone()), alive.image_id.clone(), Some(alive.started_at), api_clock::now());
                }
                Err(error) => {
                    tracing::warn!(container = %alive.id, error = chain(&error), "waiting for the container's end failed");
                    tokio::time::sleep(WAIT_RETRY).await;
                }
            }
        };
        send(&reports, Report::Exited(name, alive.attempt, ended.of_user(alive.user))).await;
    }

    /// Runs one probe until cancelled; reports each change of its verdict.
    pub(crate) async fn probe(
        self,
        name: String,
        kind: ProbeKind,
        probe: Probe,
        alive: RunningInstance,
        ip: IpAddr,
        cancel: CancellationToken,
    ) {
        let Some((_, container)) = container::find(&self.pod, &name) else { return };
        let target = action::Target { node: &self.node, container, alive: &alive, ip };
        let work = async {
            let mut tally = probe::Tally::new(&probe, kind, alive.readiness_ok);
            let mut rounds = probe::Rounds::new(&probe, alive.started_at);
            loop {
                rounds.next().await;
                let began = tokio::time::Instant::now();
                // Boxed: most of the time no attempt is made.
                let outcome = Box::pin(probe::once(&target, &probe)).await;
                self.probe_results.count(&name, kind, outcome.is_ok(), began.elapsed());
                if let Err(error) = &outcome {
                    self.node.note(&self.pod, Some(&name), true, "Unhealthy", format!("{} probe failed: {}", kind.as_str(), chain(error)));
                }
                if let Some(success) = tally.count(outcome.is_ok()) {
                    self.report(Report::Probed { name: name.clone(), attempt: alive.attempt, kind, success }).await;
                }
            }
        };
        tokio::select! {
            () = cancel.cancelled() => {}
            () = work => {}
        }
    }
}

async fn send(reports: &mpsc::Sender<Box<Report>>, report: Report) {
    if reports.send(Box::new(report)).await.is_err() {
        tracing::debug!("the worker has ended");
    }
}

/// The text of volume errors includes their sources.
fn volume_text(error: &VolumeError) -> String {
    error.to_string()
}
