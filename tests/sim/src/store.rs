//! A store in memory that adds each committed write to the history at the moment of its commit.

use std::sync::Arc;

use api_store::{Events, MemoryStore, Revision, Snapshot, Store, StoreError, Write};
use async_trait::async_trait;

use crate::history::History;
use crate::leaders;

/// The store of a run.
pub struct Recorded {
    store: MemoryStore,
    history: Arc<History>,
}

impl Recorded {
    pub fn new(history: Arc<History>) -> Self {
        Self { store: MemoryStore::new(), history }
    }
}

#[async_trait]
impl Store for Recorded {
    async fn write(&self, write: Write) -> Result<Revision, StoreError> {
        let (key, value) = (Arc::clone(&write.key), write.value.clone());
        // The store in memory commits within one poll, so the history has the order of the revisions.
        let revision = self.store.write(write).await?;
        self.history.commit(revision, &key, value.as_ref());
        leaders::check(&self.history, &key);
        Ok(revision)
    }

    async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.store.snapshot().await
    }

    async fn head(&self) -> Result<Revision, StoreError> {
        self.store.head().await
    }

    async fn watch(&self, after: Revision) -> Result<Events, StoreError> {
        self.store.watch(after).await
    }

    async fn compacted(&self) -> Result<Revision, StoreError> {
        self.store.compacted().await
    }

    async fn compact(&self, upto: Revision) -> Result<(), StoreError> {
        self.store.compact(upto).await
    }

    async fn size_bytes(&self) -> Result<u64, StoreError> {
        self.store.size_bytes().await
    }

    async fn close(&self) {
        self.store.close().await;
    }
}
