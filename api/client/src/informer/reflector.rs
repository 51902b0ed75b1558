//! Reduces the events of kube's watcher to changes of the cache.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, DefaultBackoff, Event, watcher};
use tokio_util::sync::CancellationToken;

use super::cache::{SharedCache, revision};
use super::{Cached, ObjectKey};
use crate::error::{chain, is_everyday};

/// The longest wait between two attempts to watch. A node whose link is restored serves stale names and rules until then.
const RECONNECT_MAX: Duration = Duration::from_secs(3);

/// Watches until `stop`.
pub(super) async fn run<K: Cached>(api: Api<K>, fields: String, cache: Arc<SharedCache<K>>, stop: CancellationToken) {
    let config = if fields.is_empty() { watcher::Config::default() } else { watcher::Config::default().fields(&fields) };
    let events = watcher(api, config).backoff(Reconnect::default());
    stop.run_until_cancelled(follow(events, &cache)).await;
}

/// Applies events to the cache until the stream ends. Errors are logged; the stream itself tries again.
pub(super) async fn follow<K: Cached>(events: impl Stream<Item = watcher::Result<Event<K>>>, cache: &SharedCache<K>) {
    let mut events = std::pin::pin!(events);
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => {
                listed.clear();
                cache.stats.listed();
            }
            Ok(Event::InitApply(object)) => {
                listed.insert(ObjectKey::from(object.meta()));
                cache.put(object);
            }
            Ok(Event::InitDone) => cache.complete(&std::mem::take(&mut listed)),
            Ok(Event::Apply(object)) => cache.put(object),
            Ok(Event::Delete(object)) => {
                cache.remove(&ObjectKey::from(object.meta()));
                cache.delivered(revision(object.meta()));
            }
            Err(error) => {
                cache.stats.interrupted();
                let (kind, everyday, error) = (&cache.stats.kind, is_everyday(&error), chain(&error));
                if everyday {
                    tracing::debug!(kind, error, "watch interrupted");
                } else {
                    tracing::warn!(kind, error, "watch interrupted");
                }
            }
        }
    }
}

/// kube's waits between attempts, none longer than [`RECONNECT_MAX`].
#[derive(Default)]
struct Reconnect(DefaultBackoff);

impl Iterator for Reconnect {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|wait| wait.min(RECONNECT_MAX))
    }
}

impl Backoff for Reconnect {
    fn reset(&mut self) {
        self.0.reset();
    }
}
