//! The starts of Pods and containers, and the work of their workers.

use std::time::Duration;

use api_metrics::{Counters, Families, Histograms};

use super::DEFAULT_BUCKETS;
use crate::container::Role;

/// Upstream's `podStartupDurationBuckets`.
const START_BUCKETS: [f64; 25] = [
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1_200.0,
    1_800.0, 2_700.0, 3_600.0,
];
const STATUS_BUCKETS: [f64; 11] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];
const CONTAINERS_BUCKETS: [f64; 5] = [1.0, 2.0, 4.0, 8.0, 16.0];

/// Why a worker has something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncType {
    /// The Pod is new to the worker.
    Create,
    /// The Pod has changed.
    Update,
    /// Something happened to its containers, or a time has come.
    Sync,
}

impl SyncType {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Sync => "sync",
        }
    }
}

/// See the module.
pub(crate) struct PodMetrics {
    started: Counters<0>,
    started_errors: Counters<0>,
    containers: Counters<1>,
    container_errors: Counters<2>,
    restarted: Counters<1>,
    orphaned: Counters<0>,
    containers_per_pod: Histograms<0>,
    start: Histograms<0>,
    start_sli: Histograms<0>,
    start_total: Histograms<0>,
    worker_start: Histograms<0>,
    worker: Histograms<1>,
    status_sync: Histograms<0>,
}

impl Default for PodMetrics {
    fn default() -> Self {
        let metrics = Self {
            started: Counters::new("kubelet_started_pods_total", "Number of attempts to make a Pod's sandbox.", []),
            started_errors: Counters::new("kubelet_started_pods_errors_total", "Number of failures to make a Pod's sandbox.", []),
            containers: Counters::new("kubelet_started_containers_total", "Number of attempts to start a container.", ["container_type"]),
            container_errors: Counters::new(
                "kubelet_started_containers_errors_total",
                "Number of failures to start a container.",
                ["container_type", "code"],
            ),
            restarted: Counters::new(
                "kubelet_restarted_pods_total",
                "Number of Pods that began again with the UID of a Pod that was removed before.",
                ["static"],
            ),
            orphaned: Counters::new(
                "kubelet_orphaned_runtime_pods_total",
                "Number of Pods with containers that the node found at its start and that do not exist any more.",
                [],
            ),
            containers_per_pod: Histograms::new(
                "kubelet_containers_per_pod_count",
                "Number of containers of each Pod.",
                [],
                &CONTAINERS_BUCKETS,
            ),
            start: of_start("kubelet_pod_start_duration_seconds", "Duration in seconds from when the node gets a Pod until the Pod runs."),
            start_sli: of_start(
                "kubelet_pod_start_sli_duration_seconds",
                "Duration in seconds from the creation of a Pod until the API has all its containers as started, without image pulls and \
                 init containers.",
            ),
            start_total: of_start(
                "kubelet_pod_start_total_duration_seconds",
                "Duration in seconds from the creation of a Pod until the API has all its containers as started.",
            ),
            worker_start: Histograms::new(
                "kubelet_pod_worker_start_duration_seconds",
                "Duration in seconds from when the node gets a Pod until the Pod's worker runs.",
                [],
                &DEFAULT_BUCKETS,
            ),
            worker: Histograms::new(
                "kubelet_pod_worker_duration_seconds",
                "Duration in seconds until a worker has done what its Pod needed, by what caused it.",
                ["operation_type"],
                &DEFAULT_BUCKETS,
            ),
            status_sync: Histograms::new(
                "kubelet_pod_status_sync_duration_seconds",
                "Duration in seconds from the change of a Pod's status until the API has it.",
                [],
                &STATUS_BUCKETS,
            ),
        };
        [&metrics.started, &metrics.started_errors, &metrics.orphaned].into_iter().for_each(|counters| counters.add([], 0));
        let histograms = [&metrics.containers_per_pod, &metrics.start, &metrics.start_sli, &metrics.start_total];
        histograms.into_iter().chain([&metrics.worker_start, &metrics.status_sync]).for_each(|histograms| histograms.declare([]));
        metrics.restarted.add(["true"], 0);
        metrics
    }
}

/// A histogram of starts.
fn of_start(name: &'static str, help: &'static str) -> Histograms<0> {
    Histograms::new(name, help, [], &START_BUCKETS)
}

impl PodMetrics {
    /// The node got a Pod with so many containers, and its worker runs.
    pub(crate) fn worker_started(&self, containers: usize, took: Duration) {
        self.containers_per_pod.observe([], containers as f64);
        self.worker_start.observe([], took.as_secs_f64());
    }

    /// A sandbox was made, or not.
    pub(crate) fn sandbox_started(&self, is_made: bool) {
        self.started.count([]);
        self.started_errors.add([], u64::from(!is_made));
    }

    /// A container was started. The error is why not: a reason of the container's state.
    pub(crate) fn container_started(&self, role: Role, result: Result<(), &'static str>) {
        let container_type = match role {
            Role::Init | Role::Sidecar => "init_container",
            Role::Main => "container",
            Role::Ephemeral => "ephemeral_container",
        };
        self.containers.count([container_type]);
        if let Err(code) = result {
            self.container_errors.count([container_type, code]);
        }
    }

    /// A static Pod that was removed is there again, and unchanged.
    pub(crate) fn static_pod_restarted(&self) {
        self.restarted.count(["true"]);
    }

    /// Containers of so many Pods were left that do not exist any more.
    pub(crate) fn orphaned(&self, pods: usize) {
        self.orphaned.add([], pods as u64);
    }

    /// A Pod runs for the first time.
    pub(crate) fn runs(&self, took: Duration) {
        self.start.observe([], took.as_secs_f64());
    }

    /// The API has all containers of a new Pod as started. `without` is the time of image pulls and init containers.
    pub(crate) fn is_reported_started(&self, since_creation: Duration, without: Duration) {
        self.start_sli.observe([], since_creation.saturating_sub(without).as_secs_f64());
        self.start_total.observe([], since_creation.as_secs_f64());
    }

    /// A worker has nothing to do any more.
    pub(crate) fn synced(&self, cause: SyncType, took: Duration) {
        self.worker.observe([cause.name()], took.as_secs_f64());
    }

    /// The API has a changed status.
    pub(crate) fn status_synced(&self, took: Duration) {
        self.status_sync.observe([], took.as_secs_f64());
    }

    pub(super) fn add_to(&self, families: &mut Families) {
        [&self.started, &self.started_errors].into_iter().for_each(|counters| counters.add_to(families));
        self.containers.add_to(families);
        self.container_errors.add_to(families);
        self.restarted.add_to(families);
        self.orphaned.add_to(families);
        let histograms = [&self.containers_per_pod, &self.start, &self.start_sli, &self.start_total, &self.worker_start];
        histograms.into_iter().for_each(|histograms| histograms.add_to(families));
        self.worker.add_to(families);
        self.status_sync.add_to(families);
    }
}
