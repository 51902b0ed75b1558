//! The operations that the node asks of its runtimes, its image store and its network, under the names of CRI.

use std::time::Duration;

use api_metrics::{Counters, Families, Histograms};
use tokio::time::Instant;

/// Upstream's buckets: 5 ms, and 2.5 times as much each.
const BUCKETS: [f64; 14] = [
    0.005,
    0.0125,
    0.03125,
    0.078125,
    0.1953125,
    0.48828125,
    1.220703125,
    3.0517578125,
    7.62939453125,
    19.073486328125,
    47.6837158203125,
    119.20928955078125,
    298.0232238769531,
    745.0580596923828,
];

/// An operation of CRI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    RunPodSandbox,
    StopPodSandbox,
    ListPodSandbox,
    CreateContainer,
    StartContainer,
    StopContainer,
    RemoveContainer,
    ListContainers,
    UpdateContainerResources,
    ContainerStats,
    ListContainerStats,
    ReopenContainerLog,
    Exec,
    Attach,
    PullImage,
    ImageStatus,
    ListImages,
    ImageFsInfo,
}

impl Operation {
    /// Upstream's label.
    fn name(self) -> &'static str {
        match self {
            Self::RunPodSandbox => "run_podsandbox",
            Self::StopPodSandbox => "stop_podsandbox",
            Self::ListPodSandbox => "list_podsandbox",
            Self::CreateContainer => "create_container",
            Self::StartContainer => "start_container",
            Self::StopContainer => "stop_container",
            Self::RemoveContainer => "remove_container",
            Self::ListContainers => "list_containers",
            Self::UpdateContainerResources => "update_container",
            Self::ContainerStats => "container_stats",
            Self::ListContainerStats => "list_container_stats",
            Self::ReopenContainerLog => "reopen_container_log",
            Self::Exec => "exec",
            Self::Attach => "attach",
            Self::PullImage => "pull_image",
            Self::ImageStatus => "image_status",
            Self::ListImages => "list_images",
            Self::ImageFsInfo => "image_fs_info",
        }
    }
}

/// See the module.
pub(crate) struct RuntimeOperations {
    operations: Counters<1>,
    errors: Counters<1>,
    durations: Histograms<1>,
}

impl Default for RuntimeOperations {
    fn default() -> Self {
        let labels = ["operation_type"];
        Self {
            operations: Counters::new("kubelet_runtime_operations_total", "Number of runtime operations.", labels),
            errors: Counters::new("kubelet_runtime_operations_errors_total", "Number of runtime operations that failed.", labels),
            durations: Histograms::new(
                "kubelet_runtime_operations_duration_seconds",
                "Duration in seconds of runtime operations.",
                labels,
                &BUCKETS,
            ),
        }
    }
}

impl RuntimeOperations {
    /// Counts and times an operation. One that is dropped before its end does not count.
    pub(crate) async fn measure<T, E>(&self, operation: Operation, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let began = Instant::now();
        let result = work.await;
        self.add(operation, began.elapsed(), result.is_ok());
        result
    }

    /// Counts an operation that has ended.
    pub(crate) fn add(&self, operation: Operation, took: Duration, is_ok: bool) {
        let labels = [operation.name()];
        self.operations.count(labels);
        self.durations.observe(labels, took.as_secs_f64());
        if !is_ok {
            self.errors.count(labels);
        }
    }

    pub(super) fn add_to(&self, families: &mut Families) {
        self.operations.add_to(families);
        self.durations.add_to(families);
        self.errors.add_to(families);
    }
}
