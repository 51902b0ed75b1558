//! One write at a time in a namespace that has quotas.
//!
//! What is used is counted from stored objects, so a check is worth nothing once another write may
//! have come in between. A [`Hold`] goes along with the write until every read sees it.

pub(crate) mod status;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// Who holds which namespace.
#[derive(Default)]
pub(crate) struct Quotas {
    by_namespace: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// The right to write in a namespace.
pub(crate) type Hold = OwnedMutexGuard<()>;

impl Quotas {
    /// Waits for the namespace.
    pub(crate) async fn hold(&self, namespace: &str) -> Hold {
        let lock = {
            let mut locks = self.by_namespace.lock();
            // Those that nobody holds or waits for are made again when they are needed.
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(locks.entry(namespace.to_owned()).or_default())
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_namespace_is_held_by_one_and_forgotten_when_free() {
        let quotas = Quotas::default();
        let (held, other) = (quotas.hold("a").await, quotas.hold("b").await);
        assert!(quotas.by_namespace.lock()["a"].try_lock().is_err());
        drop((held, other));
        drop(quotas.hold("c").await);
        assert_eq!(quotas.by_namespace.lock().keys().collect::<Vec<_>>(), ["c"]);
    }
}
