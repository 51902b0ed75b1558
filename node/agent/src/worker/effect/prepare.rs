//! The slow part of a container's first start: its module is compiled. Events of the container say so in the style of upstream's
//! `Pulling` and `Pulled`.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Container;
use runtimes_contract::{ContainerSpec, ContentKind, Runtime, RuntimeError};

use super::Effects;
use crate::layout::PodName;

impl Effects {
    /// Prepares a container's content. What takes long has events and a queue of its own, so that a small module never waits for the
    /// large ones of its namespace.
    pub(super) async fn prepare_content(
        &self,
        container: &Container,
        runtime: &Arc<dyn Runtime>,
        spec: &ContainerSpec,
    ) -> Result<(), RuntimeError> {
        let namespace = PodName::of(&self.pod).namespace;
        let preparation = runtime.preparation(spec).await?;
        let Some(preparation) = preparation.filter(|preparation| preparation.takes_long) else {
            // Code in the cache is read and hashed. A Linux image needs no preparation and waits for none.
            let _permit = match runtime.runs() {
                ContentKind::Wasm => Some(self.node.preparations.acquire(&namespace).await),
                ContentKind::Linux => None,
            };
            return runtime.prepare(spec, &namespace).await.map(drop);
        };
        let image = container.image.as_deref().unwrap_or_default();
        let note = |reason, message: String| self.node.note(&self.pod, Some(&container.name), false, reason, message);
        note("Compiling", format!("Compiling the WebAssembly module of image \"{image}\" ({} bytes)", preparation.bytes));
        let requested_at = Instant::now();
        let _permit = self.node.long_preparations.acquire(&namespace).await;
        let took = runtime.prepare(spec, &namespace).await?;
        let waited = requested_at.elapsed();
        note(
            "Compiled",
            format!("Successfully compiled the WebAssembly module of image \"{image}\" in {took:.3?} ({waited:.3?} including waiting)"),
        );
        Ok(())
    }
}
