//! The pause container of a Pod whose containers share their processes: created with the sandbox, waited for as long as it runs.

use runtimes_contract::{ContentKind, RuntimeError, Sandbox};

use super::{Effects, WAIT_RETRY, send};
use crate::container::processes::{self, PauseContainer};
use crate::container::spec;
use crate::error::chain;
use crate::worker::learn::Report;

impl Effects {
    /// Starts the pause container of a Pod that needs one and has none that runs. `handler` is that of its RuntimeClass. A class of
    /// WebAssembly has none: each container says why it does not start.
    pub(super) async fn pause(
        &self,
        sandbox: &Sandbox,
        handler: Option<&str>,
        running: Option<PauseContainer>,
    ) -> Result<Option<PauseContainer>, RuntimeError> {
        if !processes::are_shared(&self.pod) || running.is_some() {
            return Ok(running);
        }
        let parts = &self.node.parts;
        let runtime = handler.map_or_else(|| parts.by_kind(ContentKind::Linux), |handler| parts.by_handler(handler));
        let Some(runtime) = runtime.filter(|runtime| runtime.runs() == ContentKind::Linux) else { return Ok(None) };
        let spec = spec::pause(&self.pod, sandbox, &self.node.layout, self.node.machine.oom_score_adj);
        // One that has ended has the same id.
        runtime.remove(&spec.id).await?;
        runtime.create(&spec).await?;
        if let Err(error) = runtime.start(&spec.id).await {
            if let Err(error) = runtime.remove(&spec.id).await {
                tracing::warn!(container = %spec.id, error = chain(&error), "half-made pause container not removed");
            }
            return Err(error);
        }
        Ok(Some(PauseContainer { id: spec.id, handler: runtime.handler().to_owned() }))
    }

    /// Waits for the end of the pause container.
    pub(crate) async fn wait_for_pause(self, pause: PauseContainer) {
        let (node, reports) = self.without_pod();
        let Some(runtime) = node.parts.by_handler(&pause.handler).cloned() else { return };
        loop {
            match runtime.wait(&pause.id).await {
                Ok(_) | Err(RuntimeError::NotFound(_)) => break,
                Err(error) => tracing::warn!(container = %pause.id, error = chain(&error), "waiting for the sandbox's end failed"),
            }
            tokio::time::sleep(WAIT_RETRY).await;
        }
        send(&reports, Report::SandboxEnded).await;
    }
}
