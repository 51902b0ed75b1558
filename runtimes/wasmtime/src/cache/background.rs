//! Makes the optimized code of modules that have been started without: one at a time, at a low priority, within the same bounds as
//! any compilation, in no slot that a first compilation could use. It goes on when the container that caused it has ended, because
//! the image stays and the next start has the use. A failure leaves the code without optimization in use.

use std::convert::Infallible;
use std::time::Instant;

use runtimes_contract::RuntimeError;
use runtimes_host::blocking;

use super::make::{Priority, Source};
use super::{Inner, Optimization, StoredModule};

impl Inner {
    pub(super) async fn work_in_background(&self) -> Infallible {
        loop {
            let module = self.backlog.next().await;
            self.optimize(&module).await;
        }
    }

    async fn optimize(&self, module: &StoredModule) {
        let begun = Instant::now();
        match self.optimized(module).await {
            Ok(true) => tracing::info!(digest = module.digest, took = ?begun.elapsed(), "module optimized for its next start"),
            Ok(false) => {}
            Err(error) => tracing::warn!(digest = module.digest, %error, "module not optimized; it runs without"),
        }
    }

    /// Whether optimized code was made. It was not if it is there already, or was refused lately.
    pub(super) async fn optimized(&self, module: &StoredModule) -> Result<bool, RuntimeError> {
        let look = self.look(module, Optimization::Full)?;
        // Not the key of a first compilation: the module starts even if it cannot be optimized.
        let refusal = format!("{} in the background", look.key);
        if self.refused.why(&refusal, Instant::now()).is_some() {
            return Ok(false);
        }
        let present = {
            let look = look.clone();
            blocking(move || look.find()).await?
        };
        if present.is_some() {
            return Ok(false);
        }
        // An image that was removed meanwhile is an error here, and no harm.
        let source = Source::open(module).await?;
        let made = self.make(&look, source, Priority::Low).await;
        if let Err(RuntimeError::BadContent(why)) = &made {
            self.refused.add(&refusal, why, Instant::now());
        }
        made.map(|_| true)
    }
}
