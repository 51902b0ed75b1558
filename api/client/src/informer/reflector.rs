//! Reduces the events of kube's watcher to changes of a store: the cache of an informer, or a store of the reader's own.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use api_tasks::Tasks;
use futures::{Stream, StreamExt as _};
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, DefaultBackoff, Event, watcher};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::metrics::{self, Stats};
use crate::error::{chain, is_everyday};

/// The longest wait between two attempts to watch. A node whose link is restored serves stale names and rules until then.
const RECONNECT_MAX: Duration = Duration::from_secs(3);

/// A kind that can be watched.
pub trait Watched: kube::Resource<DynamicType: Clone + Send + Sync> + Clone + Debug + DeserializeOwned + Send + Sync + 'static {}

impl<K: kube::Resource<DynamicType: Clone + Send + Sync> + Clone + Debug + DeserializeOwned + Send + Sync + 'static> Watched for K {}

/// What a watch fills, client-go's Store.
pub trait Store<K>: Send + Sync + 'static {
    /// What identifies an object in a list.
    type Key: Ord + Send;

    /// The key of an object.
    fn key(object: &K) -> Self::Key;

    /// A list begins, whose objects are put until it is complete.
    fn begin_list(&self) {}

    /// Records the present state of an object, which the store may have already.
    fn put(&self, object: K);

    /// Removes an object; this is its last state.
    fn remove(&self, object: &K);

    /// Removes the objects that a complete list did not contain.
    fn complete(&self, listed: &BTreeSet<Self::Key>);
}

/// A watch that fills a store of the reader's own. For readers that store less of each object than an informer does.
pub struct Reflector {
    synced: watch::Receiver<bool>,
    /// Stops the watch when it is dropped.
    _watch: DropGuard,
}

impl Reflector {
    /// Starts a watch of all objects as a task of `tasks`. `kind` names the watch in logs and metrics.
    pub fn start<K: Watched, S: Store<K>>(api: Api<K>, kind: &str, tasks: &Tasks, store: S) -> Self {
        let stats = Arc::new(Stats::new(kind));
        let (sender, synced) = watch::channel(false);
        let store = Signalled { store, synced: sender };
        Self { synced, _watch: spawn(api, "", tasks, Arc::new(store), stats) }
    }

    /// Waits until the first list is in the store, or the watch has ended.
    pub async fn synced(&self) {
        // An error means that the watch has ended.
        let _ = self.synced.clone().wait_for(|synced| *synced).await;
    }
}

/// A store with a signal of its first complete list.
struct Signalled<S> {
    store: S,
    synced: watch::Sender<bool>,
}

impl<K, S: Store<K>> Store<K> for Signalled<S> {
    type Key = S::Key;

    fn key(object: &K) -> Self::Key {
        S::key(object)
    }

    fn put(&self, object: K) {
        self.store.put(object);
    }

    fn begin_list(&self) {
        self.store.begin_list();
    }

    fn remove(&self, object: &K) {
        self.store.remove(object);
    }

    fn complete(&self, listed: &BTreeSet<Self::Key>) {
        self.store.complete(listed);
        self.synced.send_replace(true);
    }
}

/// Starts a watch as a task of `tasks`, until the guard is dropped.
pub(super) fn spawn<K: Watched, S: Store<K>>(api: Api<K>, fields: &str, tasks: &Tasks, store: Arc<S>, stats: Arc<Stats>) -> DropGuard {
    metrics::register(&stats);
    let stop = tasks.stopping().child_token();
    tasks.stopped_by(stop.clone()).own("informer", run(api, fields.to_owned(), store, stats, stop.clone()));
    stop.drop_guard()
}

/// Watches until `stop`.
async fn run<K: Watched, S: Store<K>>(api: Api<K>, fields: String, store: Arc<S>, stats: Arc<Stats>, stop: CancellationToken) {
    let config = if fields.is_empty() { watcher::Config::default() } else { watcher::Config::default().fields(&fields) };
    // Each function that takes the stream would have room for it twice, and the process has a hundred watches.
    let events = watcher(api, config).backoff(Reconnect::default()).boxed();
    stop.run_until_cancelled(follow(events, &*store, &stats)).await;
}

/// Applies events to the store until the stream ends. Errors are logged; the stream itself tries again.
pub(super) async fn follow<K, S: Store<K>>(events: impl Stream<Item = watcher::Result<Event<K>>>, store: &S, stats: &Stats) {
    let mut events = std::pin::pin!(events);
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => {
                listed.clear();
                store.begin_list();
                stats.listed();
            }
            Ok(Event::InitApply(object)) => {
                listed.insert(S::key(&object));
                store.put(object);
            }
            Ok(Event::InitDone) => store.complete(&std::mem::take(&mut listed)),
            Ok(Event::Apply(object)) => store.put(object),
            Ok(Event::Delete(object)) => store.remove(&object),
            Err(error) => {
                stats.interrupted();
                let (kind, everyday, error) = (&stats.kind, is_everyday(&error), chain(&error));
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
