//! The writes of a controller that its cache does not show yet, by the answers of the server. A pass that plans from an older cache would
//! decide by what is not true any more: for example, that a Pod stays that the controller has deleted.
//!
//! Upstream skips a pass over a stale cache in the same way (`StaleControllerConsistency`). Controllers that create objects of generated
//! names need [`Expectations`](super::Expectations) instead: there a creation counts whose answer was lost.

use std::collections::HashMap;
use std::time::Duration;

use api_client::informer::{Cached, Informer, ObjectKey, WriteMark};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::expectations::EXPECTATION_TTL;

/// How often a pass looks whether the cache shows the writes. Usually the event of a write is what wakes it.
const RECHECK: Duration = Duration::from_secs(1);

/// Unseen writes of one controller, by the owner's key.
#[derive(Debug, Default)]
pub struct UnseenWrites {
    owners: Mutex<HashMap<ObjectKey, Unseen>>,
}

#[derive(Debug)]
struct Unseen {
    /// The owner's UID: another object may have its name by now.
    uid: String,
    writes: Vec<WriteMark>,
    /// Then the watch is assumed to have lost the writes.
    until: Instant,
}

impl UnseenWrites {
    /// Adds the answers of writes. Call it at the end of a pass.
    pub fn add<K: Cached>(&self, owner: &ObjectKey, uid: &str, written: &[K], informer: &Informer<K>) {
        if written.is_empty() {
            return;
        }
        let writes = written.iter().map(|object| informer.mark(object)).collect();
        let unseen = Unseen { uid: uid.to_owned(), writes, until: Instant::now() + EXPECTATION_TTL };
        self.owners.lock().insert(owner.clone(), unseen);
    }

    /// When a pass looks again because the cache does not show all writes of the last one; `None` if it does.
    pub fn wait<K: Cached>(&self, owner: &ObjectKey, uid: &str, informer: &Informer<K>) -> Option<Duration> {
        let mut owners = self.owners.lock();
        let unseen = owners.get_mut(owner)?;
        unseen.writes.retain(|mark| !informer.has_delivered(mark));
        if unseen.writes.is_empty() || unseen.uid != uid || unseen.until <= Instant::now() {
            owners.remove(owner);
            return None;
        }
        Some(RECHECK)
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
        unseen.add(&owner, "a", &[], &informer);
        assert_eq!(unseen.wait(&owner, "a", &informer), None);
        unseen.add(&owner, "a", &[pod(5), pod(7)], &informer);
        informer.put(pod(5));
        assert_eq!(unseen.wait(&owner, "a", &informer), Some(RECHECK));
        informer.put(pod(7));
        assert_eq!(unseen.wait(&owner, "a", &informer), None);
        unseen.add(&owner, "a", &[pod(9)], &informer);
        tokio::time::advance(EXPECTATION_TTL).await;
        assert_eq!(unseen.wait(&owner, "a", &informer), None);
    }

    #[tokio::test(start_paused = true)]
    async fn another_owner_of_the_name_does_not_wait() {
        let (unseen, informer, owner) = (UnseenWrites::default(), Informer::detached(), ObjectKey::new("ns", "set"));
        unseen.add(&owner, "a", &[pod(9)], &informer);
        assert_eq!(unseen.wait(&owner, "b", &informer), None);
        unseen.add(&owner, "b", &[pod(9)], &informer);
        unseen.forget(&owner);
        assert_eq!(unseen.wait(&owner, "b", &informer), None);
    }
}
