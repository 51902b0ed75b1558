//! How long the start of the worker's Pod took, and how long the worker was busy each time. The node counts both.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus};
use tokio::time::Instant;

use super::Worker;
use crate::kubelet_metrics::SyncType;
use crate::record::{Clean, ImageState, InstanceState, PodRecord, Resize, SandboxState};
use crate::static_pods::Origin;

/// The times of a worker.
pub(super) struct Timing {
    /// `None` when the Pod's start is not measured, or is over.
    start: Option<Start>,
    /// Why the worker is busy, and since when.
    busy: Option<(SyncType, Instant)>,
}

/// The start of a Pod.
struct Start {
    /// When the node got the Pod.
    got_at: Instant,
    /// When the first image pull began, and the last one ended.
    pulls: Option<(Instant, Instant)>,
    /// Whether the Pod has run.
    runs: bool,
}

impl Timing {
    /// A worker begins. The start of a Pod that began earlier, before a restart of the agent for example, is not measured.
    pub(super) fn new(pod: &Pod, got_at: Instant) -> Self {
        let is_new = pod.status.as_ref().is_none_or(|status| status.start_time.is_none());
        let start = is_new.then_some(Start { got_at, pulls: None, runs: false });
        Self { start, busy: None }
    }

    /// The worker has something to do. The first cause counts until it rests.
    pub(super) fn wake(&mut self, cause: SyncType) {
        self.busy.get_or_insert_with(|| (cause, Instant::now()));
    }

    /// An image pull begins or has ended.
    pub(super) fn pulls(&mut self) {
        if let Some(start) = &mut self.start {
            let now = Instant::now();
            start.pulls = Some((start.pulls.map_or(now, |(first, _)| first), now));
        }
    }
}

impl Worker {
    /// The worker is about to wait. It rests when no step is in progress.
    pub(super) fn measure_rest(&mut self) {
        if !is_busy(&self.record)
            && let Some((cause, since)) = self.timing.busy.take()
        {
            self.node.kubelet_metrics.pods.synced(cause, since.elapsed());
        }
    }

    /// The Pod has this status by now.
    pub(super) fn measure_first_run(&mut self, status: &PodStatus) {
        if let Some(start) = self.timing.start.as_mut().filter(|start| !start.runs && status.phase.as_deref() == Some("Running")) {
            start.runs = true;
            self.node.kubelet_metrics.pods.runs(start.got_at.elapsed());
        }
    }

    /// The API has delivered the Pod. Its start is over when its status has all containers as started. A static Pod is made by no
    /// request, so that its creation is no start.
    pub(super) fn measure_reported_start(&mut self) {
        let status = self.wanted.status.as_ref().filter(|status| self.timing.start.is_some() && all_started(status));
        let Some(status) = status else { return };
        let pulls = self.timing.start.take().and_then(|start| start.pulls);
        let created = self.wanted.metadata.creation_timestamp.as_ref().filter(|_| self.effects.origin == Origin::Api);
        if let Some(created) = created {
            let pulling = pulls.map_or(Duration::ZERO, |(first, last)| last - first);
            let since_creation = api_clock::between(created.0, api_clock::now());
            self.node.kubelet_metrics.pods.is_reported_started(since_creation, pulling + init_time(status));
        }
    }
}

/// Whether a step is in progress.
fn is_busy(record: &PodRecord) -> bool {
    let of_pod = record.sandbox == SandboxState::Making || record.clean == Clean::Busy || matches!(record.resize, Resize::Busy { .. });
    of_pod
        || record.containers.values().any(|container| {
            let stops = container.alive().is_some_and(|alive| alive.stopping);
            stops || matches!(container.run, InstanceState::Starting { .. }) || matches!(container.image, ImageState::Pulling)
        })
}

/// Whether all of `spec.containers` have been started.
fn all_started(status: &PodStatus) -> bool {
    let began = |status: &ContainerStatus| status.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some());
    status.phase.as_deref() == Some("Running") && status.container_statuses.as_ref().is_some_and(|all| all.iter().all(began))
}

/// The time in which init containers ran, sidecars apart.
fn init_time(status: &PodStatus) -> Duration {
    let ran = |state: &ContainerState| {
        let ended = state.terminated.as_ref()?;
        Some(api_clock::between(ended.started_at.as_ref()?.0, ended.finished_at.as_ref()?.0))
    };
    status.init_container_statuses.iter().flatten().filter_map(|status| ran(status.state.as_ref()?)).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(containers: &Value, init: &Value) -> PodStatus {
        let of = |state: &Value| json!({"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state});
        let list = |states: &Value| states.as_array().expect("a list").iter().map(of).collect::<Vec<_>>();
        let status = json!({"phase": "Running", "containerStatuses": list(containers), "initContainerStatuses": list(init)});
        serde_json::from_value(status).expect("a status")
    }

    #[test]
    fn a_pod_has_started_when_each_container_has() {
        let (running, waiting) = (json!({"running": {}}), json!({"waiting": {}}));
        let ended = json!({"terminated": {"exitCode": 0}});
        assert!(all_started(&status(&json!([running, ended]), &json!([]))));
        assert!(!all_started(&status(&json!([running, waiting]), &json!([]))));
        assert!(!all_started(&PodStatus { phase: Some("Pending".to_owned()), ..status(&json!([running]), &json!([])) }));
    }

    #[test]
    fn init_containers_take_the_time_from_start_to_end() {
        let ran = |from: &str, to: &str| json!({"terminated": {"exitCode": 0, "startedAt": from, "finishedAt": to}});
        let states = json!([
            ran("2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z"),
            ran("2026-01-01T00:00:06Z", "2026-01-01T00:00:08Z"),
            {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        ]);
        assert_eq!(init_time(&status(&json!([]), &states)), Duration::from_secs(7));
    }

    #[tokio::test(start_paused = true)]
    async fn pulls_last_from_the_first_beginning_to_the_last_end() {
        let mut timing = Timing::new(&Pod::default(), Instant::now());
        for seconds in [1, 2, 4] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            timing.pulls();
        }
        let (first, last) = timing.start.and_then(|start| start.pulls).expect("it pulled");
        assert_eq!(last - first, Duration::from_secs(6));
    }
}
