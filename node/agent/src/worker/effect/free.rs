//! Frees what the worker's Pod has on the node.

use runtimes_contract::ContainerId;

use super::Effects;
use crate::cleanup::{self, CleanupError};
use crate::container::resources;
use crate::layout::PodName;
use crate::worker::learn::Report;

impl Effects {
    /// Frees everything of the Pod. Logs stay as long as they can be requested.
    pub(crate) async fn clean(self, ids: Vec<String>, forget_logs: bool) {
        let result = self.free(ids, forget_logs).await;
        self.report(Report::Cleaned(result)).await;
    }

    /// The rest is freed when no container is left: a container that could not be removed may still run there.
    async fn free(&self, ids: Vec<String>, forget_logs: bool) -> Result<(), CleanupError> {
        let mut first = Ok(());
        for id in ids {
            first = first.and(cleanup::remove_everywhere(&self.node, &ContainerId(id)).await);
        }
        first?;
        cleanup::free_pod(&self.node, &PodName::of(&self.pod), Some(resources::qos(&self.pod)), forget_logs).await
    }
}
