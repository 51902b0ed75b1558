//! What quotas allow: kept by one write at a time in a namespace that has some.
//!
//! What is used follows from what is stored, so a check is worth nothing once another write may have
//! come in between. A [`Hold`] goes along with the write until every read sees it. Nothing is booked
//! beforehand: a write that fails leaves nothing behind, and a deletion counts as soon as it is answered.
//! The [`ledger`] keeps the sums, so that a check costs the same however much there is.

mod ledger;
pub(crate) mod status;

use std::collections::HashMap;
use std::sync::Arc;

use api_admission::{Request, resource_quota};
use api_model::kind::GroupResource;
use api_model::view::View as _;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use self::ledger::{Ledger, LedgerSums};
use crate::app::App;
use crate::exclusive::{self, Exclusive};
use api_wire::status::ApiResult;

/// What is used, and who holds which namespace.
pub(crate) struct Quotas {
    is_on: bool,
    ledger: Ledger,
    by_namespace: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// The right to be the only one to write in a namespace, in this server and among all.
pub(crate) type Hold = (OwnedMutexGuard<()>, Option<Arc<Exclusive>>);

impl Quotas {
    /// Obeyed unless the plugin is among those switched off.
    pub(crate) fn new(off: &[String]) -> Self {
        Self { is_on: !off.iter().any(|name| name == resource_quota::NAME), ledger: Ledger::default(), by_namespace: Mutex::default() }
    }

    /// Waits for the namespace.
    async fn hold(&self, namespace: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.by_namespace.lock();
            // Those that nobody holds or waits for are made again when they are needed.
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(locks.entry(namespace.to_owned()).or_default())
        };
        lock.lock_owned().await
    }
}

/// Refuses what would break a quota. The answer is true as long as what it answers is held; without quotas
/// there is nothing to hold, and what is not to be stored holds up nobody.
pub(crate) async fn check(app: &Arc<App>, request: &Request<'_>) -> ApiResult<Option<Hold>> {
    let namespace = request.namespace;
    if !app.quotas.is_on || !resource_quota::concerns(request) {
        return Ok(None);
    }
    if app.cache.list(&GroupResource::new("", "resourcequotas"), Some(namespace)).is_empty() {
        return Ok(None);
    }
    let hold = match request.dry_run {
        true => None,
        false => Some((app.quotas.hold(namespace).await, exclusive::enter(app, &format!("quota.{namespace}")).await?)),
    };
    let known = LedgerSums { ledger: &app.quotas.ledger, cache: &app.cache };
    resource_quota::check(request, &*app.cache, &known)?;
    Ok(hold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_namespace_is_held_by_one_and_forgotten_when_free() {
        let quotas = Quotas::new(&[]);
        let (held, other) = (quotas.hold("a").await, quotas.hold("b").await);
        assert!(quotas.by_namespace.lock()["a"].try_lock().is_err());
        drop((held, other));
        drop(quotas.hold("c").await);
        assert_eq!(quotas.by_namespace.lock().keys().collect::<Vec<_>>(), ["c"]);
    }
}
