//! Writes of plugins that go on when nobody waits for them any more: what they do may be in the store, whatever becomes of their Pod.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// How long the end of the scheduler waits for them.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);

/// The writes under way. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Writes(Arc<Shared>);

#[derive(Default)]
struct Shared {
    tasks: Mutex<JoinSet<()>>,
    ended: Notify,
}

impl Writes {
    /// Runs a write to its end.
    pub fn spawn(&self, write: impl Future<Output = ()> + Send + 'static) {
        let shared = Arc::clone(&self.0);
        self.0.tasks.lock().spawn(api_tasks::named("scheduler/resource-claims", async move {
            write.await;
            shared.ended.notify_one();
        }));
    }

    /// The number of writes under way.
    pub fn len(&self) -> usize {
        let mut tasks = self.0.tasks.lock();
        while let Some(ended) = tasks.try_join_next() {
            api_tasks::joined(ended);
        }
        tasks.len()
    }

    /// Waits until a write has ended since the last call. Dropping the future loses nothing.
    pub async fn ended(&self) {
        self.0.ended.notified().await;
    }

    /// Waits for the writes under way, within [`SHUTDOWN_MAX`]. The others are dropped.
    pub async fn shutdown(&self) {
        let mut tasks = std::mem::take(&mut *self.0.tasks.lock());
        let all = async {
            while let Some(ended) = tasks.join_next().await {
                api_tasks::joined(ended);
            }
        };
        if tokio::time::timeout(SHUTDOWN_MAX, all).await.is_err() {
            tracing::warn!(writes = tasks.len(), "the end of the scheduler did not wait for writes of claims");
        }
    }
}
