//! The writes of a controller that its cache does not show yet. Until the cache shows them, or five minutes have passed, the
//! controller must not count Pods again, or it would create and delete twice.
//!
//! Upstream's `UIDTrackingControllerExpectations`: creations are counted; deletions are remembered by UID, because the cache
//! may show a Pod both as being deleted and as gone.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use api_client::informer::ObjectKey;
use parking_lot::Mutex;
use tokio::time::Instant;

/// After this time the watch event is assumed to be lost, upstream's.
pub(super) const EXPECTATION_TTL: Duration = Duration::from_secs(300);

/// Expectations of one controller, by the owner's key.
#[derive(Debug, Default)]
pub struct Expectations {
    owners: Mutex<HashMap<ObjectKey, Expected>>,
}

#[derive(Debug)]
struct Expected {
    creations: usize,
    deletions: HashSet<String>,
    since: Instant,
}

impl Expectations {
    /// Whether the cache shows everything that was expected, or the wait was too long.
    pub fn satisfied(&self, owner: &ObjectKey) -> bool {
        let owners = self.owners.lock();
        owners.get(owner).is_none_or(|e| (e.creations == 0 && e.deletions.is_empty()) || e.since.elapsed() >= EXPECTATION_TTL)
    }

    /// Expects that number of creations. Call it before creating.
    pub fn expect_creations(&self, owner: &ObjectKey, count: usize) {
        self.expect(owner, count, []);
    }

    /// Expects the deletion of these UIDs. Call it before deleting.
    pub fn expect_deletions(&self, owner: &ObjectKey, uids: impl IntoIterator<Item = String>) {
        self.expect(owner, 0, uids);
    }

    /// Expects both. What was expected before is replaced.
    pub fn expect(&self, owner: &ObjectKey, creations: usize, deletions: impl IntoIterator<Item = String>) {
        let fresh = Expected { creations, deletions: deletions.into_iter().collect(), since: Instant::now() };
        self.owners.lock().insert(owner.clone(), fresh);
    }

    /// A creation was observed, or did not happen.
    pub fn created(&self, owner: &ObjectKey) {
        if let Some(expected) = self.owners.lock().get_mut(owner) {
            expected.creations = expected.creations.saturating_sub(1);
        }
    }

    /// A deletion was observed, or did not happen.
    pub fn deleted(&self, owner: &ObjectKey, uid: &str) {
        if let Some(expected) = self.owners.lock().get_mut(owner) {
            expected.deletions.remove(uid);
        }
    }

    /// The owner is gone.
    pub fn forget(&self, owner: &ObjectKey) {
        self.owners.lock().remove(owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn creations_and_deletions_are_waited_for() {
        let expectations = Expectations::default();
        let owner = ObjectKey::new("ns", "rs");
        assert!(expectations.satisfied(&owner));
        expectations.expect_creations(&owner, 2);
        expectations.created(&owner);
        assert!(!expectations.satisfied(&owner));
        expectations.created(&owner);
        assert!(expectations.satisfied(&owner));
        expectations.expect_deletions(&owner, ["u1".to_owned(), "u2".to_owned()]);
        expectations.deleted(&owner, "u1");
        expectations.deleted(&owner, "u1");
        assert!(!expectations.satisfied(&owner), "one Pod seen twice counts once");
        expectations.deleted(&owner, "u2");
        assert!(expectations.satisfied(&owner));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_event_is_not_waited_for_for_ever() {
        let expectations = Expectations::default();
        let owner = ObjectKey::new("ns", "rs");
        expectations.expect_creations(&owner, 1);
        tokio::time::advance(EXPECTATION_TTL).await;
        assert!(expectations.satisfied(&owner));
    }
}
