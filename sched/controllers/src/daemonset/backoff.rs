//! How long a node's failed Pod stays before the next one is tried: from a second to 15 minutes, upstream's
//! `failedPodsBackoff`. A kubelet that rejects a Pod would otherwise get the next one at once.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// After this time without a failure an entry is dropped.
const FORGOTTEN_AFTER: Duration = LONGEST.saturating_mul(2);

/// A DaemonSet by UID, its observed generation, and the node.
pub type Key = (String, i64, String);

/// The back-offs of all DaemonSets and nodes.
#[derive(Debug, Default)]
pub struct Backoffs {
    entries: Mutex<HashMap<Key, Entry>>,
}

#[derive(Debug)]
struct Entry {
    delay: Duration,
    since: Instant,
}

impl Backoffs {
    /// How long the node's failed Pod has to stay; `None` if it may be deleted.
    pub fn left(&self, key: &Key) -> Option<Duration> {
        let entries = self.entries.lock();
        let entry = entries.get(key)?;
        entry.delay.checked_sub(entry.since.elapsed()).filter(|left| !left.is_zero())
    }

    /// A failed Pod is deleted now: the next one has to stay longer.
    pub fn next(&self, key: Key) {
        let mut entries = self.entries.lock();
        entries.retain(|_, entry| entry.since.elapsed() < FORGOTTEN_AFTER);
        let since = Instant::now();
        let entry = entries.entry(key).and_modify(|entry| entry.delay = (entry.delay * 2).min(LONGEST));
        entry.or_insert(Entry { delay: FIRST, since }).since = since;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_delay_doubles_and_is_forgotten() {
        let backoffs = Backoffs::default();
        let key = ("u".to_owned(), 1, "n1".to_owned());
        assert_eq!(backoffs.left(&key), None);
        backoffs.next(key.clone());
        assert_eq!(backoffs.left(&key), Some(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(backoffs.left(&key), None);
        backoffs.next(key.clone());
        assert_eq!(backoffs.left(&key), Some(Duration::from_secs(2)));
        tokio::time::advance(FORGOTTEN_AFTER).await;
        backoffs.next(key.clone());
        assert_eq!(backoffs.left(&key), Some(Duration::from_secs(1)));
    }
}
