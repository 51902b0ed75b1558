//! Expiry of Events and of lists in pages.
//!
//! All pages of a list show the same revision for five to ten minutes, which is how long etcd keeps history under upstream's server
//! (`--etcd-compaction-interval`). A client that continues later starts over or gets the present state.
//!
//! Events are kept for `--event-ttl` after their last write; upstream uses etcd's leases for that. Several servers on one store may
//! all delete expired Events: the second one finds an Event gone.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::core::{Core, WriteError};
use api_cache::{Filter, Object};
use api_wire::json;

/// The interval between two looks for expired Events.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Upstream's `DefaultCompactInterval`.
const LISTS_EVERY: Duration = Duration::from_secs(300);
/// Deletions at once: the store commits them together.
const AT_ONCE: usize = 64;
/// The fields with the times at which an Event was last seen.
const TIMES: &[&[&str]] = &[&["series", "lastObservedTime"], &["lastTimestamp"], &["eventTime"], &["metadata", "creationTimestamp"]];

/// Deletes expired Events until the server stops. Without a time to live, Events stay for ever.
pub(crate) async fn run(core: Arc<Core>) {
    let ttl = core.config.event_ttl;
    if ttl.is_zero() {
        return core.shutdown.cancelled().await;
    }
    loop {
        tokio::select! {
            () = core.shutdown.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY.min(ttl)) => pass(&core, api_clock::now()).await,
        }
    }
}

/// Expires lists until the server stops: continuing a list of a revision from before the last two looks is rejected.
pub(crate) async fn lists(core: Arc<Core>) {
    loop {
        let seen = core.cache.applied();
        tokio::select! {
            () = core.shutdown.cancelled() => return,
            () = tokio::time::sleep(LISTS_EVERY) => core.cache.expire_lists(seen),
        }
    }
}

/// Deletes the Events that have expired at this time.
pub(crate) async fn pass(core: &Core, now: Timestamp) {
    let Some(served) = core.registry.find("", "v1", "events") else { return };
    let events = served.resource.list(&Filter::default(), core.cache.applied()).items;
    let over: Vec<Arc<Object>> = events.into_iter().filter(|event| is_over(&event.value(), core.config.event_ttl, now)).collect();
    for some in over.chunks(AT_ONCE) {
        for deleted in futures::future::join_all(some.iter().map(|event| core.remove(&served, event, None))).await {
            match deleted {
                // Changed or deleted meanwhile: the next pass decides again.
                Ok(_) | Err(WriteError::Conflict) => {}
                Err(WriteError::Api(error)) => {
                    tracing::warn!(error = error.message(), "an old event is not deleted; it will be tried again")
                }
            }
        }
    }
}

fn is_over(event: &Value, ttl: Duration, now: Timestamp) -> bool {
    let times = TIMES.iter().filter_map(|path| json::text(event, path).parse::<Timestamp>().ok());
    times.max().is_some_and(|last| Duration::try_from(now.duration_since(last)).is_ok_and(|age| age > ttl))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_lives_on_from_when_it_was_last_seen() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().expect("a time");
        let hour = Duration::from_secs(3_600);
        for (event, expected) in [
            (json!({"metadata": {"creationTimestamp": "2026-01-01T11:00:01Z"}}), false),
            (json!({"metadata": {"creationTimestamp": "2026-01-01T10:59:59Z"}}), true),
            (json!({"metadata": {"creationTimestamp": "2026-01-01T09:00:00Z"}, "lastTimestamp": "2026-01-01T11:30:00Z"}), false),
            (json!({"metadata": {"creationTimestamp": "2026-01-01T09:00:00Z"}, "eventTime": "2026-01-01T10:00:00.123456Z"}), true),
            (json!({"eventTime": "2026-01-01T09:00:00.000000Z", "series": {"lastObservedTime": "2026-01-01T11:59:00.000000Z"}}), false),
            // From a clock that is ahead, or without any time: not known to have expired.
            (json!({"metadata": {"creationTimestamp": "2026-01-01T13:00:00Z"}, "lastTimestamp": null}), false),
            (json!({}), false),
        ] {
            assert_eq!(is_over(&event, hour, now), expected, "{event}");
        }
    }
}
