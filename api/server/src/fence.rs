//! The fence of leaders on the server's side: what a client of this process writes as the leader of a Lease is stored only while it leads.
//!
//! A leader may be stopped at any moment, also within the server, and goes on after another process took its Lease. Its write is then
//! refused, whatever the time: the write carries a guard, the revision at which the cache has the Lease as the leader's, and the store
//! compares this revision in the transaction of the write itself. So a cache that is behind does no harm. A renewal changes the Lease too,
//! so that a write that meets one is refused by the store although its client still leads; it is repeated with the new revision.
//!
//! The Lease stands beside the request, as the user does, and in no header. Requests from outside have none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api_cache::{Cache, Resource, key};
use api_model::kind::GroupResource;
use api_store::{Guard, Revision, Store, StoreError, Write};
use api_wire::json;
use api_wire::status::{ApiError, ApiResult};
use serde_json::Value;

/// Renewals that may overtake one write, each seconds after the one before.
const RENEWALS_MAX: usize = 8;

/// The Lease of a leader during one of its terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderLease {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// The leader: `spec.holderIdentity`.
    pub holder_identity: String,
    /// The term: `spec.leaseTransitions`.
    pub lease_transitions: i32,
}

/// The condition on the writes of one leader in one term.
#[derive(Debug)]
pub(crate) struct Fence {
    lease: LeaderLease,
    leases: Arc<Resource>,
    key: Arc<str>,
    /// The last revision of the Lease that was found to be of this term; 0, none. Most writes meet the same one.
    led_at: AtomicU64,
}

impl Fence {
    pub(crate) fn new(cache: &Cache, lease: LeaderLease) -> Self {
        let leases = cache.resource(&GroupResource::new("coordination.k8s.io", "leases"));
        let key = key::object_key(&leases.name, &lease.namespace, &lease.name);
        Self { lease, leases, key, led_at: AtomicU64::new(0) }
    }

    /// The condition of a write. An error if the leader no longer leads, as far as the cache has followed the store.
    pub(crate) fn guard(&self) -> ApiResult<Guard> {
        let LeaderLease { namespace, name, holder_identity, .. } = &self.lease;
        if let Some(lease) = self.leases.get(namespace, name) {
            let revision = lease.revision;
            if self.led_at.load(Ordering::Relaxed) == revision || is_of_term(&lease.value(), &self.lease) {
                self.led_at.store(revision, Ordering::Relaxed);
                return Ok(Guard { key: Arc::clone(&self.key), revision });
            }
        }
        let message = format!("the write needs the Lease {namespace}/{name}, which {holder_identity:?} has lost or released");
        Err(ApiError::forbidden(&self.leases.name, name, message))
    }

    /// Writes if the leader leads at the moment of the write.
    pub(crate) async fn write(&self, store: &dyn Store, cache: &Cache, write: Write) -> ApiResult<Result<Revision, StoreError>> {
        let mut guard = self.guard()?;
        for _ in 0..RENEWALS_MAX {
            let mut guarded = write.clone();
            // Behind the others: the first one is in the error of a store that cannot say which one failed.
            guarded.guards.push(guard.clone());
            let written = store.write(guarded).await;
            if !matches!(written, Err(StoreError::Unguarded { .. })) {
                return Ok(written);
            }
            let head = store.head().await?;
            cache.wait_for(head).await.map_err(|_| ApiError::took_too_long())?;
            let before = std::mem::replace(&mut guard, self.guard()?);
            if before == guard {
                // Another guard failed.
                return Ok(written);
            }
        }
        Err(ApiError::took_too_long())
    }
}

/// Whether a Lease is a leader's in its term.
fn is_of_term(lease: &Value, leader: &LeaderLease) -> bool {
    let transitions = lease.pointer("/spec/leaseTransitions").and_then(Value::as_i64).unwrap_or_default();
    json::text(lease, &["spec", "holderIdentity"]) == leader.holder_identity && transitions == i64::from(leader.lease_transitions)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_is_of_the_term_of_its_holder() {
        let leader = LeaderLease {
            namespace: "kube-system".to_owned(),
            name: "x".to_owned(),
            holder_identity: "me".to_owned(),
            lease_transitions: 3,
        };
        for (spec, expected) in [
            (json!({"holderIdentity": "me", "leaseTransitions": 3}), true),
            (json!({"holderIdentity": "me", "leaseTransitions": 3, "renewTime": "later"}), true),
            (json!({"holderIdentity": "other", "leaseTransitions": 4}), false),
            // It has led before, and another one in between.
            (json!({"holderIdentity": "me", "leaseTransitions": 5}), false),
            // Released.
            (json!({"holderIdentity": "", "leaseTransitions": 3}), false),
            (json!({"holderIdentity": "me"}), false),
            (json!({}), false),
        ] {
            assert_eq!(is_of_term(&json!({"spec": spec}), &leader), expected, "{spec}");
        }
        let first = LeaderLease { lease_transitions: 0, ..leader };
        assert!(is_of_term(&json!({"spec": {"holderIdentity": "me"}}), &first));
    }
}
