//! The removals of finalizers that the cache does not show yet. A Pod whose end was counted must not be counted again because
//! the cache still shows its finalizer.

use std::collections::{HashMap, HashSet};

use api_client::informer::ObjectKey;
use parking_lot::Mutex;

/// UIDs of Pods, by the key of their Job.
#[derive(Debug, Default)]
pub struct Removals {
    jobs: Mutex<HashMap<ObjectKey, HashSet<String>>>,
}

impl Removals {
    /// Expects the removal from these Pods. Call it before the removal.
    pub fn expect(&self, job: &ObjectKey, uids: impl IntoIterator<Item = String>) {
        self.jobs.lock().entry(job.clone()).or_default().extend(uids);
    }

    /// The cache shows the removal, or it did not happen.
    pub fn observed(&self, job: &ObjectKey, uid: &str) {
        let mut jobs = self.jobs.lock();
        if let Some(uids) = jobs.get_mut(job) {
            uids.remove(uid);
            if uids.is_empty() {
                jobs.remove(job);
            }
        }
    }

    /// The Pods whose removal the cache does not show yet.
    pub fn expected(&self, job: &ObjectKey) -> HashSet<String> {
        self.jobs.lock().get(job).cloned().unwrap_or_default()
    }

    /// The Job is gone.
    pub fn forget(&self, job: &ObjectKey) {
        self.jobs.lock().remove(job);
    }
}
