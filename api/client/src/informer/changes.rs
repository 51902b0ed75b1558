//! Keys of objects that changed, for a consumer with a loop of its own.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::{Cached, Informer, ObjectKey, Registration};

/// The changes of a kind since the consumer last took them.
pub struct Changes<K> {
    /// Dropped first: after that no keys are added.
    _registration: Registration<K>,
    informer: Informer<K>,
    pending: Arc<Pending>,
    synced: watch::Receiver<bool>,
    is_synced: bool,
}

/// A batch for a consumer.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch {
    /// Objects that were added, changed or removed, in the order of their first change. Each is here once.
    pub keys: Vec<ObjectKey>,
    /// Whether these keys and those of earlier batches cover the whole first list.
    pub synced: bool,
}

#[derive(Default)]
struct Pending {
    keys: Mutex<Keys>,
    wake: Notify,
}

#[derive(Default)]
struct Keys {
    order: Vec<ObjectKey>,
    all: HashSet<ObjectKey>,
}

impl Pending {
    fn add(&self, key: ObjectKey) {
        let mut keys = self.keys.lock();
        if keys.all.insert(key.clone()) {
            keys.order.push(key);
        }
        drop(keys);
        self.wake.notify_one();
    }

    fn take(&self) -> Vec<ObjectKey> {
        std::mem::take(&mut *self.keys.lock()).order
    }
}

impl<K: Cached> Changes<K> {
    pub(super) fn new(informer: Informer<K>) -> Self {
        let pending = Arc::new(Pending::default());
        let added = Arc::clone(&pending);
        let synced = informer.cache.subscribe_synced();
        let registration = informer.on_change(move |change| {
            if let Some(object) = change.latest() {
                added.add(ObjectKey::from(object.meta()));
            }
        });
        Self { _registration: registration, informer, pending, synced, is_synced: false }
    }

    /// The informer whose changes these are.
    pub fn informer(&self) -> &Informer<K> {
        &self.informer
    }

    /// Waits for changes, or for the end of the first list. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Batch {
        loop {
            // Before the keys are taken: the first list was stored completely before this became true.
            let synced = *self.synced.borrow_and_update();
            let keys = self.pending.take();
            if !keys.is_empty() || synced != self.is_synced {
                self.is_synced = synced;
                return Batch { keys, synced };
            }
            tokio::select! {
                () = self.pending.wake.notified() => {}
                // The stream holds the informer, and with it the sender.
                _ = self.synced.changed(), if !synced => {}
            }
        }
    }
}
