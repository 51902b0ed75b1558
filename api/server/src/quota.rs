//! ResourceQuotas. In a namespace with quotas, one write is checked and made at a time.
//!
//! The usage follows from the stored objects, so a check is wrong as soon as another write comes in between. A [`Hold`] goes along
//! with the write until every read sees it. Nothing is reserved: a write that fails leaves nothing behind, and a deletion counts as
//! soon as it is answered. The [`ledger`] keeps the sums, so that the cost of a check does not depend on the number of objects.

mod ledger;
mod overdue;
pub(crate) mod status;

use std::collections::HashMap;
use std::sync::Arc;

use api_admission::{Request, resource_quota};
use api_model::kind::GroupResource;
use api_model::view::View as _;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use self::ledger::{Ledger, LedgerSums};
use crate::core::Core;
use crate::exclusive::{self, Exclusive, Locks};
use api_wire::status::ApiResult;

/// The usage, and the locks of namespaces.
pub(crate) struct Quotas {
    core: Arc<Core>,
    locks: Arc<Locks>,
    is_on: bool,
    ledger: Ledger,
    namespaces: NamespaceLocks,
}

/// One lock a namespace, in this server.
#[derive(Default)]
struct NamespaceLocks(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

/// The locks for a write in a namespace: this server's, and the one among servers that share a store.
pub(crate) type Hold = (OwnedMutexGuard<()>, Option<Arc<Exclusive>>);

impl Quotas {
    /// Quotas are checked unless the plugin is switched off.
    pub(crate) fn new(core: &Arc<Core>, locks: &Arc<Locks>) -> Arc<Self> {
        let is_on = !core.config.disable_admission_plugins.iter().any(|name| name == resource_quota::NAME);
        let (core, locks) = (Arc::clone(core), Arc::clone(locks));
        Arc::new(Self { core, locks, is_on, ledger: Ledger::default(), namespaces: NamespaceLocks::default() })
    }

    /// Whether quotas of this namespace are checked.
    pub(crate) fn has(&self, namespace: &str) -> bool {
        self.is_on && !self.core.cache.list(&GroupResource::new("", "resourcequotas"), Some(namespace)).is_empty()
    }

    /// Rejects what would break a quota. The answer is true for as long as the returned hold lives. Without quotas there is
    /// nothing to hold, and a dry run holds up nobody.
    pub(crate) async fn check(&self, request: &Request<'_>) -> ApiResult<Option<Hold>> {
        let (namespace, cache) = (request.namespace, &self.core.cache);
        if !resource_quota::concerns(request) || !self.has(namespace) {
            return Ok(None);
        }
        let hold = match request.dry_run {
            true => None,
            false => Some((self.namespaces.hold(namespace).await, exclusive::enter(&self.locks, &format!("quota.{namespace}")).await?)),
        };
        resource_quota::check(request, &**cache, &LedgerSums { ledger: &self.ledger, cache })?;
        Ok(hold)
    }
}

impl NamespaceLocks {
    /// Waits for the namespace.
    async fn hold(&self, namespace: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock();
            // Locks that nobody holds or waits for are dropped; they are made again when needed.
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
    async fn a_namespace_has_one_owner_and_is_forgotten_when_free() {
        let locks = NamespaceLocks::default();
        let (first, other) = (locks.hold("a").await, locks.hold("b").await);
        assert!(locks.0.lock()["a"].try_lock().is_err());
        drop((first, other));
        drop(locks.hold("c").await);
        assert_eq!(locks.0.lock().keys().collect::<Vec<_>>(), ["c"]);
    }
}
