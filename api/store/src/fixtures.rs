//! A store for tests that changes the behaviour of a few calls of another store.

use async_trait::async_trait;

use crate::{Events, Revision, Snapshot, Store, StoreError, Write};

/// Passes every call on to the inner store, except the calls that the type overrides. Each type with this trait is a
/// [`Store`].
#[async_trait]
pub trait StoreWrapper: Send + Sync {
    /// The inner store.
    fn inner(&self) -> &dyn Store;

    /// [`Store::is_shared`].
    fn wrapped_is_shared(&self) -> bool {
        self.inner().is_shared()
    }

    /// [`Store::write`].
    async fn wrapped_write(&self, write: Write) -> Result<Revision, StoreError> {
        self.inner().write(write).await
    }

    /// [`Store::snapshot`].
    async fn wrapped_snapshot(&self) -> Result<Snapshot, StoreError> {
        self.inner().snapshot().await
    }

    /// [`Store::watch`].
    async fn wrapped_watch(&self, after: Revision) -> Result<Events, StoreError> {
        self.inner().watch(after).await
    }
}

#[async_trait]
impl<W: StoreWrapper> Store for W {
    async fn write(&self, write: Write) -> Result<Revision, StoreError> {
        self.wrapped_write(write).await
    }

    async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.wrapped_snapshot().await
    }

    async fn head(&self) -> Result<Revision, StoreError> {
        self.inner().head().await
    }

    fn is_shared(&self) -> bool {
        self.wrapped_is_shared()
    }

    async fn watch(&self, after: Revision) -> Result<Events, StoreError> {
        self.wrapped_watch(after).await
    }

    async fn compacted(&self) -> Result<Revision, StoreError> {
        self.inner().compacted().await
    }

    async fn compact(&self, upto: Revision) -> Result<(), StoreError> {
        self.inner().compact(upto).await
    }

    async fn size_bytes(&self) -> Result<u64, StoreError> {
        self.inner().size_bytes().await
    }

    async fn close(&self) {
        self.inner().close().await;
    }
}
