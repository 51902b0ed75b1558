//! The loop of every controller: shared watches fill shared caches, changes put keys into a controller's queue, and workers
//! reconcile one key at a time with back-off.
//!
//! Two workers never process one key at the same time. A key that is added while it is processed is processed once more (the
//! promises of client-go's work queue). The queue has keys only, never the content of an event.

mod expectations;
mod meter;
mod queue;
mod shares;
#[cfg(test)]
mod tests;
mod unseen;

use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

pub use expectations::Expectations;
pub use queue::WorkQueue;
pub use unseen::UnseenWrites;

use crate::failure::Failure;
use shares::Shares;

/// As many flows can be worked on at the same time at least.
const FLOWS_MIN: usize = 4;

/// What a queue can have as a key.
pub trait Key: Clone + Debug + Eq + Hash + Ord + Send + Sync + 'static {}
impl<T: Clone + Debug + Eq + Hash + Ord + Send + Sync + 'static> Key for T {}

/// When to reconcile a key again although nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Only when something changes.
    OnChange,
    /// After this time at the latest.
    After(Duration),
}

impl Next {
    /// The earlier of the two.
    #[must_use]
    pub fn or_after(self, other: Option<Duration>) -> Self {
        match (self, other) {
            (Self::After(a), Some(b)) => Self::After(a.min(b)),
            (Self::OnChange, Some(b)) => Self::After(b),
            (next, None) => next,
        }
    }
}

/// One controller: brings the cluster nearer to what the object of one key specifies.
pub trait Controller: Send + Sync + 'static {
    /// Upstream's name, for example `replicaset-controller`.
    const NAME: &'static str;
    /// Number of keys that are processed at the same time.
    const WORKERS: usize;
    /// What identifies a piece of work.
    type Key: Key;

    /// The flow of a key, for controllers whose passes wait for others: the namespace, if users choose the servers, or the node. The keys of
    /// one flow take at most a quarter of the workers.
    fn flow(_key: &Self::Key) -> Option<&str> {
        None
    }

    /// One pass over the present state of `key`.
    fn reconcile(&self, key: &Self::Key) -> impl Future<Output = Result<Next, Failure>> + Send;
}

/// Works the queue until cancelled, then waits for the passes that run.
pub async fn work<C: Controller>(controller: Arc<C>, queue: Arc<WorkQueue<C::Key>>, cancel: CancellationToken) {
    let mut running = JoinSet::new();
    let mut shares = Shares::new(C::WORKERS / FLOWS_MIN);
    loop {
        let next = tokio::select! {
            biased;
            () = cancel.cancelled() => break,
            Some(ended) = running.join_next_with_id(), if !running.is_empty() => shares.leave(task(C::NAME, ended)),
            key = queue.next(), if running.len() < C::WORKERS => {
                let flow = C::flow(&key).map(str::to_owned);
                shares.enter(flow.as_deref(), key)
            }
        };
        if let Some(key) = next {
            let flow = C::flow(&key).map(str::to_owned);
            let task = running.spawn(api_tasks::named(C::NAME, pass(Arc::clone(&controller), Arc::clone(&queue), key)));
            shares.begin(flow.as_deref(), task.id());
        }
    }
    while let Some(ended) = running.join_next_with_id().await {
        task(C::NAME, ended);
    }
}

/// The task that ended. A panic concerns one key only, which is tried again with back-off. The panic was logged and counted where
/// it happened.
fn task(controller: &str, ended: Result<(Id, ()), JoinError>) -> Id {
    match ended {
        Ok((id, ())) => id,
        Err(error) => {
            tracing::debug!(controller, %error, "reconcile did not end");
            error.id()
        }
    }
}

async fn pass<C: Controller>(controller: Arc<C>, queue: Arc<WorkQueue<C::Key>>, key: C::Key) {
    // Frees the key also when the reconcile panics.
    let processing = Processing { queue: &queue, key: &key };
    match controller.reconcile(&key).await {
        Ok(next) => {
            queue.forget(&key);
            if let Next::After(delay) = next {
                queue.add_after(key.clone(), delay);
            }
        }
        Err(Failure::Unfinished { object, waiting_for, at_most }) => {
            tracing::debug!(controller = C::NAME, object, waiting_for, "not finished");
            queue.add_rate_limited(key.clone(), at_most);
        }
        Err(failure) => {
            if failure.is_conflict() {
                tracing::debug!(controller = C::NAME, ?key, error = failure.chain(), "conflict, reading again");
            } else {
                tracing::warn!(controller = C::NAME, ?key, error = failure.chain(), "reconcile failed");
            }
            queue.add_rate_limited(key.clone(), Duration::MAX);
        }
    }
    drop(processing);
}

struct Processing<'a, K: Key> {
    queue: &'a WorkQueue<K>,
    key: &'a K,
}

impl<K: Key> Drop for Processing<'_, K> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.queue.add_rate_limited(self.key.clone(), Duration::MAX);
        }
        self.queue.done(self.key);
    }
}
