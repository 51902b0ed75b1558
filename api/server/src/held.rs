//! What a write gives up only when it is seen or has failed: until then nobody else may decide on the
//! same things.

use std::sync::Arc;

use api_cache::Object;
use api_store::{Expect, Guard};
use api_wire::status::ApiError;
use bytes::Bytes;

use crate::core::{Core, WriteError};
use crate::exclusive::Exclusive;
use crate::quota::Hold;
use crate::registry::Served;
use crate::services::Reservation;

/// What is held for one write.
#[derive(Default)]
pub(crate) struct WriteLocks {
    /// Addresses and ports.
    pub(crate) reservation: Option<Reservation>,
    /// The right to hand these out.
    pub(crate) alone: Option<Arc<Exclusive>>,
    /// What is left of the namespace's quotas.
    pub(crate) quota: Option<Hold>,
}

impl WriteLocks {
    fn is_nothing(&self) -> bool {
        self.reservation.is_none() && self.alone.is_none() && self.quota.is_none()
    }

    /// What must still be so when the write is made, where servers share a store.
    fn guards(&self) -> Vec<Guard> {
        let quota = self.quota.as_ref().and_then(|(_, exclusive)| exclusive.as_ref());
        self.alone.iter().chain(quota).map(|exclusive| exclusive.guard()).collect()
    }

    /// Writes an object's bytes, and lets go only when the write is seen or has failed, whether or not the client waits for
    /// that. A write whose answer is lost may be made later, when another server holds what was held here; the guards keep
    /// the store from making it.
    pub(crate) async fn put(
        self,
        core: &Arc<Core>,
        served: &Arc<Served>,
        (namespace, name): (&str, &str),
        expect: Expect,
        bytes: Bytes,
    ) -> Result<Arc<Object>, WriteError> {
        if self.is_nothing() {
            return core.put_encoded(served, (namespace, name), expect, bytes, Vec::new()).await;
        }
        let (writer, served) = (Arc::clone(core), Arc::clone(served));
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let writing = core.tasks.request("api-server/write", async move {
            let written = writer.put_encoded(&served, (&namespace, &name), expect, bytes, self.guards()).await;
            drop(self);
            written
        });
        writing.await.unwrap_or_else(|error| Err(WriteError::Api(ApiError::internal(error))))
    }
}
