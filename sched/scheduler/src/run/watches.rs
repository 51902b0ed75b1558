//! One kind's changes, as the scheduler's loop takes them.

use std::sync::Arc;

use api_client::informer::{Batch, Cached, Changes, Informer, ObjectKey};

/// The watch of one kind.
pub(super) struct Watch<K> {
    changes: Changes<K>,
    is_synced: bool,
}

/// The newest states of objects; `None` for those that are gone.
pub(super) type Objects<K> = Vec<(ObjectKey, Option<Arc<K>>)>;

impl<K: Cached> Watch<K> {
    pub fn new(informer: &Informer<K>) -> Self {
        Self { changes: informer.changes(), is_synced: false }
    }

    /// Waits for changes. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Objects<K> {
        let Batch { keys, synced } = self.changes.next().await;
        self.is_synced = synced;
        keys.into_iter().map(|key| (key.clone(), self.changes.informer().get(&key))).collect()
    }

    /// Whether `next` returned the whole first list.
    pub fn is_synced(&self) -> bool {
        self.is_synced
    }
}
