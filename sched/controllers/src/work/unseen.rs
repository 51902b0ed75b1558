//! The writes of a controller that its cache does not show yet, by the answers of the server. A pass that plans from an older cache would
//! decide by what is not true any more: for example, that a Pod stays that the controller has deleted.
//!
//! Upstream skips a pass over a stale cache in the same way (`StaleControllerConsistency`). Controllers that create objects of generated
//! names need [`Expectations`](super::Expectations) instead: there a creation counts whose answer was lost.

use std::collections::HashMap;
use std::time::Duration;

use api_client::informer::{Cached, Informer, ObjectKey};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::expectations::EXPECTATION_TTL;

/// Unseen writes of one controller, by the owner's key.
pub struct UnseenWrites<K> {
    owners: Mutex<HashMap<ObjectKey, Unseen<K>>>,
}

struct Unseen<K> {
    writes: Vec<K>,
    until: Instant,
}

impl<K> Default for UnseenWrites<K> {
    fn default() -> Self {
        Self { owners: Mutex::default() }
    }
}

impl<K: Cached> UnseenWrites<K> {
    /// Adds the answers of writes. Call it at the end of a pass.
    pub fn add(&self, owner: &ObjectKey, writes: Vec<K>) {
        if writes.is_empty() {
            return;
        }
        let mut owners = self.owners.lock();
        let unseen = owners.entry(owner.clone()).or_insert_with(|| Unseen { writes: Vec::new(), until: Instant::now() });
        unseen.writes.extend(writes);
        unseen.until = Instant::now() + EXPECTATION_TTL;
    }

    /// How long a pass waits at most until the cache shows the writes; `None` if it shows all of them.
    pub fn wait(&self, owner: &ObjectKey, informer: &Informer<K>) -> Option<Duration> {
        let mut owners = self.owners.lock();
        let unseen = owners.get_mut(owner)?;
        unseen.writes.retain(|written| !informer.has_write(written));
        let wait = unseen.until.saturating_duration_since(Instant::now());
        if unseen.writes.is_empty() || wait.is_zero() {
            owners.remove(owner);
            return None;
        }
        Some(wait)
    }

    /// The owner is gone.
    pub fn forget(&self, owner: &ObjectKey) {
        self.owners.lock().remove(owner);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    fn pod(revision: u64) -> Pod {
        let meta = json!({"namespace": "ns", "name": "p", "uid": "1", "resourceVersion": revision.to_string()});
        serde_json::from_value(json!({"metadata": meta})).expect("a Pod")
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_waits_for_the_writes_of_the_last_one_but_not_for_ever() {
        let (unseen, informer, owner) = (UnseenWrites::default(), Informer::detached(), ObjectKey::new("ns", "set"));
        unseen.add(&owner, Vec::new());
        assert_eq!(unseen.wait(&owner, &informer), None);
        unseen.add(&owner, vec![pod(5), pod(7)]);
        informer.put(pod(5));
        assert_eq!(unseen.wait(&owner, &informer), Some(EXPECTATION_TTL));
        informer.put(pod(7));
        assert_eq!(unseen.wait(&owner, &informer), None);
        unseen.add(&owner, vec![pod(9)]);
        tokio::time::advance(EXPECTATION_TTL).await;
        assert_eq!(unseen.wait(&owner, &informer), None);
        unseen.add(&owner, vec![pod(9)]);
        unseen.forget(&owner);
        assert_eq!(unseen.wait(&owner, &informer), None);
    }
}
