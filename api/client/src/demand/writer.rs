//! Writes a node's report into its Lease: only when it has changed, at most once a second, and less often after failures.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use thiserror::Error;
use tokio::time::{Instant, sleep_until, timeout};

use super::{Measurement, Report};
use crate::lease::NODE_LEASE_NAMESPACE;

/// How often a node measures.
pub const PERIOD: Duration = Duration::from_secs(5);
/// The least time between two writes. It doubles after a failure, up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long a write may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a report was not written.
#[derive(Debug, Error)]
enum WriteError {
    #[error(transparent)]
    Request(#[from] kube::Error),
    #[error("no answer in time")]
    Timeout,
}

/// The writer of one kind of report of one node.
pub struct ReportWriter<M> {
    leases: Api<Lease>,
    node_name: String,
    field_manager: &'static str,
    /// The report in the Lease; none if it is unknown.
    written: Option<Report<M>>,
    next: Instant,
    pause: Duration,
}

impl<M: Measurement> ReportWriter<M> {
    /// A writer for a node, which has written nothing yet.
    pub fn new(client: kube::Client, node_name: &str, field_manager: &'static str) -> Self {
        let leases = Api::namespaced(client, NODE_LEASE_NAMESPACE);
        Self { leases, node_name: node_name.to_owned(), field_manager, written: None, next: Instant::now(), pause: PAUSE }
    }

    /// Waits until the next write may begin.
    pub async fn ready(&self) {
        sleep_until(self.next).await;
    }

    /// Writes the report unless the Lease has it. False: the write failed, and is due again after [`Self::ready`].
    pub async fn write(&mut self, report: Report<M>) -> bool {
        if self.written.as_ref() == Some(&report) {
            return true;
        }
        let outcome = timeout(WRITE_TIMEOUT, self.patch(&report)).await.unwrap_or(Err(WriteError::Timeout));
        let is_written = match outcome {
            Ok(()) => {
                self.written = Some(report);
                self.pause = PAUSE;
                true
            }
            Err(error) => {
                tracing::warn!(node = self.node_name, annotation = M::ANNOTATION, %error, "use of services not reported");
                self.written = None;
                self.pause = (self.pause * 2).min(PAUSE_MAX);
                false
            }
        };
        self.next = Instant::now() + self.pause;
        is_written
    }

    async fn patch(&self, report: &Report<M>) -> Result<(), WriteError> {
        let patch = json!({"metadata": {"annotations": {M::ANNOTATION: report.annotation()}}});
        let params = PatchParams { field_manager: Some(self.field_manager.to_owned()), ..PatchParams::default() };
        match self.leases.patch(&self.node_name, &params, &Patch::Merge(&patch)).await {
            // The agent creates the Lease. Until then there is no report to take back.
            Err(kube::Error::Api(status)) if status.code == 404 && report.is_empty() => Ok(()),
            written => Ok(written.map(drop)?),
        }
    }
}
