//! What a write gives up only when it is seen or has failed: until then nobody else may decide on the
//! same things.

use std::sync::Arc;

use api_store::Guard;

use crate::exclusive::Exclusive;
use crate::quota::Hold;
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
    pub(crate) fn is_nothing(&self) -> bool {
        self.reservation.is_none() && self.alone.is_none() && self.quota.is_none()
    }

    /// What must still be so when the write is made, where servers share a store.
    pub(crate) fn guards(&self) -> Vec<Guard> {
        let quota = self.quota.as_ref().and_then(|(_, exclusive)| exclusive.as_ref());
        self.alone.iter().chain(quota).map(|exclusive| exclusive.guard()).collect()
    }
}
