//! A Pod that has ended and stays in the API, as a finished Job's Pods do. Its worker ends: tasks, channels and futures are most of
//! what a Pod costs the node. The Pod's record stays, and a new worker continues with it when the Pod changes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodStatus;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Desired, Worker};
use crate::node::Node;
use crate::probe_results::ProbeResults;
use crate::record::{ImageState, PodRecord};

/// What the next worker of an ended Pod needs.
pub(crate) struct FinishedPod {
    record: PodRecord,
    desired: watch::Receiver<Desired>,
    /// The status that the API has; `None` when the Pod had ended before its worker began.
    status: Option<Arc<PodStatus>>,
    probe_results: Arc<ProbeResults>,
}

impl FinishedPod {
    /// Whether the manager changed what it wants after the worker last read it.
    pub(crate) fn is_outdated(&self) -> bool {
        self.desired.has_changed().unwrap_or(true)
    }
}

impl Worker {
    /// A worker that continues with an ended Pod.
    pub(crate) fn resuming(node: Arc<Node>, finished: FinishedPod, cancel: CancellationToken) -> Box<Self> {
        let FinishedPod { record, desired, status, probe_results } = finished;
        let mut worker = Self::with(node, desired, record, status, cancel);
        worker.effects.probe_results = probe_results;
        worker.look();
        worker
    }

    /// Whether the API has the final status, once it is written. Another writer may have overwritten it since.
    pub(super) fn is_reported(&self) -> bool {
        self.writer.is_status_of(&self.pod)
    }

    pub(super) fn finish(self) -> FinishedPod {
        let Self { mut record, desired, writer, effects, .. } = self;
        for container in record.containers.values_mut() {
            container.image = ImageState::Unknown;
        }
        FinishedPod { record, desired, status: writer.status(), probe_results: effects.probe_results.clone() }
    }
}
