//! Locks of a write, and its other conditions. They are released only when every read sees the write or the write has failed: until then nobody else may
//! decide about the same addresses or quotas.

use std::sync::Arc;

use api_cache::Object;
use api_store::Expect;
use api_wire::status::ApiError;
use bytes::Bytes;

use crate::core::{Conditions, Core, WriteError};
use crate::exclusive::Exclusive;
use crate::fence::Fence;
use crate::quota::Hold;
use crate::registry::Served;
use crate::services::Reservation;

/// The locks of one write.
#[derive(Default)]
pub(crate) struct WriteLocks {
    /// Addresses and ports.
    pub(crate) reservation: Option<Reservation>,
    /// The lock for handing out addresses and ports.
    pub(crate) alone: Option<Arc<Exclusive>>,
    /// The locks of the namespace's quotas.
    pub(crate) quota: Option<Hold>,
    /// What the leader that writes must still be. It is no lock.
    pub(crate) fence: Option<Arc<Fence>>,
}

impl WriteLocks {
    fn is_nothing(&self) -> bool {
        self.reservation.is_none() && self.alone.is_none() && self.quota.is_none()
    }

    /// The conditions of the write; those of locks only where servers share a store.
    fn conditions(&self) -> Conditions {
        let quota = self.quota.as_ref().and_then(|(_, exclusive)| exclusive.as_ref());
        let guards = self.alone.iter().chain(quota).map(|exclusive| exclusive.guard()).collect();
        Conditions { guards, fence: self.fence.clone() }
    }

    /// Writes an object's bytes, and releases the locks only when every read sees the write or it has failed, even if the client
    /// does not wait for that. A write whose answer was lost may reach the store later, when another server has the lock; the
    /// guards make the store reject it.
    pub(crate) async fn put(
        self,
        core: &Arc<Core>,
        served: &Arc<Served>,
        (namespace, name): (&str, &str),
        expect: Expect,
        bytes: Bytes,
    ) -> Result<Arc<Object>, WriteError> {
        if self.is_nothing() {
            return core.put_encoded(served, (namespace, name), expect, bytes, self.conditions()).await;
        }
        let (writer, served) = (Arc::clone(core), Arc::clone(served));
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let writing = core.tasks.request("api-server/write", async move {
            let written = writer.put_encoded(&served, (&namespace, &name), expect, bytes, self.conditions()).await;
            drop(self);
            written
        });
        writing.await.unwrap_or_else(|error| Err(WriteError::Api(ApiError::internal(error))))
    }
}
