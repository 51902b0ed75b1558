//! Updates the cache with the store's log.
//!
//! At the start: a snapshot, then the history before it, so that watches may resume from before a restart. After that: events
//! as they are committed. When the log was compacted beyond the cache's revision, the cache starts over from a snapshot and
//! every watch ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api_model::kind::GroupResource;
use api_store::{Batch, Entry, Event as Change, Events, Snapshot, Store, StoreError};
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

use super::event::{Before, Event};
use super::object::Object;
use super::resource::Applied;
use super::{Cache, Resource, Unreadable};
use crate::at_rest::{AtRest, AtRestError, Opened};
use crate::key;

/// The pause before the next attempt after the store failed.
const RETRY: Duration = Duration::from_millis(500);

/// Fills a cache; the returned future updates it until it is cancelled or the store is closed.
///
/// # Errors
/// When the store cannot be read.
pub async fn start(
    store: Arc<dyn Store>,
    at_rest: AtRest,
    cancel: CancellationToken,
) -> Result<(Arc<Cache>, impl Future<Output = ()> + use<>), StoreError> {
    let compacted = store.compacted().await?;
    let snapshot = store.snapshot().await?;
    let head = snapshot.revision;
    let cache = Arc::new(Cache::new(compacted, at_rest));
    let objects = load(&cache, snapshot);
    let events = match replay(&cache, &*store, objects, head).await {
        Ok(events) => events,
        // Compacted meanwhile: continue without the history, and end watches from before.
        Err(StoreError::Compacted { .. }) => {
            cache.forget_past(head);
            store.watch(head).await?
        }
        Err(error) => return Err(error),
    };
    cache.advance(head, Vec::new());
    let feeder = Feeder { store, cache: Arc::clone(&cache) };
    let closing = CloseAtEnd(Arc::clone(&cache));
    Ok((cache, async move {
        let _closing = closing;
        tokio::select! {
            () = cancel.cancelled() => {}
            () = feeder.run(events) => {}
        }
    }))
}

/// No reader waits for revisions that the cache will not get any more, also after a panic of the feeder.
struct CloseAtEnd(Arc<Cache>);

impl Drop for CloseAtEnd {
    fn drop(&mut self) {
        self.0.close();
    }
}

type Objects = HashMap<Arc<str>, Arc<Object>>;

fn load(cache: &Cache, snapshot: Snapshot) -> Objects {
    let mut objects = Objects::new();
    for Entry { key, value, revision, .. } in snapshot.entries {
        let Some((resource, object)) = read_current(cache, &key, revision, &value) else { continue };
        let object = Arc::new(object);
        objects.insert(key, Arc::clone(&object));
        resource.load(object);
    }
    objects
}

/// Decrypts a current object; records one that cannot be read.
fn read_current(cache: &Cache, key: &str, revision: u64, stored: &bytes::Bytes) -> Option<(Arc<Resource>, Object)> {
    let parts = parts(key)?;
    let resource = cache.resource(&GroupResource::new(parts.group, parts.resource));
    match read(cache, &resource, key, revision, stored) {
        Ok(object) => Some((resource, object)),
        Err(problem) => {
            let why = problem.to_string();
            tracing::error!(key, revision, problem = why, "a stored object cannot be read");
            resource.put_unreadable(parts.namespace, parts.name, Unreadable { revision, why });
            None
        }
    }
}

fn parts(key: &str) -> Option<key::Parts<'_>> {
    let parts = key::parse(key);
    if parts.is_none() {
        tracing::error!(key, "ignored a stored key that is not ours");
    }
    parts
}

/// Why stored bytes are not an object.
#[derive(Debug, thiserror::Error)]
enum UnreadableError {
    #[error("a key that is not ours")]
    Key,
    #[error(transparent)]
    Sealed(#[from] AtRestError),
    #[error("not JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// The object behind stored bytes.
fn read(cache: &Cache, resource: &Resource, key: &str, revision: u64, stored: &bytes::Bytes) -> Result<Object, UnreadableError> {
    let parts = parts(key).ok_or(UnreadableError::Key)?;
    let (plain, stale) = match cache.take_written(key, stored) {
        Some(plain) => (plain, false),
        None => {
            let opened = cache.at_rest.open(&resource.name, key, stored);
            let Opened { bytes, stale } = opened?;
            (bytes, stale)
        }
    };
    let object = Object::new((parts.namespace.into(), parts.name.into()), revision, plain, None, &cache.recent);
    Ok(object.map(|object| if stale { object.stale() } else { object })?)
}

/// Reads the history up to the snapshot's revision into the rings.
async fn replay(cache: &Cache, store: &dyn Store, current: Objects, head: u64) -> Result<Events, StoreError> {
    let mut reached = cache.applied();
    let mut events = store.watch(reached).await?;
    let mut replayed = Objects::new();
    let mut beyond = Vec::new();
    while reached < head {
        let Some(batch) = events.next().await else { return Err(StoreError::Closed) };
        let batch = batch?;
        reached = batch.revision;
        for change in batch.events {
            match change.revision <= head {
                true => remember(cache, &mut replayed, &current, change),
                false => beyond.push(change),
            }
        }
    }
    // A batch may reach beyond the snapshot: the events after it are passed on first.
    let beyond = futures::stream::iter((reached > head).then_some(Ok(Batch { events: beyond, revision: reached })));
    Ok(beyond.chain(events).boxed())
}

fn remember(cache: &Cache, replayed: &mut Objects, current: &Objects, change: Change) {
    let Some(parts) = key::parse(&change.key) else { return };
    let resource = cache.resource(&GroupResource::new(parts.group, parts.resource));
    let before = match change.previous {
        None => Before::Nothing,
        Some(previous) => match replayed.remove(&change.key).filter(|object| object.revision == previous) {
            Some(object) => Before::Object(object),
            None => Before::Forgotten,
        },
    };
    let after = change.value.as_ref().and_then(|stored| match current.get(&change.key) {
        Some(object) if object.revision == change.revision => Some(Arc::clone(object)),
        // A past state that cannot be read counts as not in the history.
        _ => read(cache, &resource, &change.key, change.revision, stored).ok().map(Arc::new),
    });
    if let Some(object) = &after {
        replayed.insert(change.key, Arc::clone(object));
    }
    resource.remember(Event::new(change.revision, before, after));
}

/// A transaction of another client may change several objects at one revision. Its changes of a resource are collected and
/// applied at once: a watcher that got a part of them at that revision would resume without the rest.
fn together(mut events: Vec<Change>) -> Vec<Change> {
    if events.windows(2).any(|pair| matches!(pair, [a, b] if a.revision == b.revision)) {
        events.sort_by(|a, b| (a.revision, &a.key).cmp(&(b.revision, &b.key)));
    }
    events
}

struct Feeder {
    store: Arc<dyn Store>,
    cache: Arc<Cache>,
}

impl Feeder {
    async fn run(&self, mut events: Events) {
        let mut questions = self.cache.questions();
        loop {
            let failure = loop {
                let batch = tokio::select! {
                    batch = events.next() => batch,
                    // An error means that the cache is gone, which the feeder itself holds.
                    Ok(()) = questions.changed() => {
                        self.cache.answered.send_replace(*questions.borrow_and_update());
                        continue;
                    }
                };
                match batch {
                    Some(Ok(batch)) => self.apply(batch),
                    Some(Err(error)) => break error,
                    None => break StoreError::Closed,
                }
            };
            events = match self.resume(failure).await {
                Some(events) => events,
                None => return,
            };
        }
    }

    fn apply(&self, Batch { events, revision }: Batch) {
        let events = together(events);
        let mut applied = Vec::with_capacity(events.len());
        let mut run: Option<(Arc<Resource>, Vec<Applied<'_>>)> = None;
        for change in &events {
            let Some(parts) = key::parse(&change.key) else { continue };
            let read = change.value.as_ref().and_then(|stored| read_current(&self.cache, &change.key, change.revision, stored));
            let (resource, after) = match read {
                Some((resource, object)) => (resource, Some(object)),
                None => (self.cache.resource(&GroupResource::new(parts.group, parts.resource)), None),
            };
            // It cannot be read, or could not be read until it was deleted.
            let is_unreadable = change.value.is_some() && after.is_none();
            if is_unreadable || (resource.put_readable(parts.namespace, parts.name) && after.is_none()) {
                applied.extend(run.take().into_iter().flat_map(|(resource, changes)| resource.apply(changes)));
                applied.push(resource.lose(parts.namespace, parts.name, change.revision));
                continue;
            }
            let change = Applied { namespace: parts.namespace, name: parts.name, revision: change.revision, after };
            match &mut run {
                Some((same, changes)) if Arc::ptr_eq(same, &resource) => changes.push(change),
                // Another resource: watchers get events in the order in which they happened.
                _ => {
                    let before = run.replace((resource, vec![change]));
                    applied.extend(before.into_iter().flat_map(|(resource, changes)| resource.apply(changes)));
                }
            }
        }
        applied.extend(run.into_iter().flat_map(|(resource, changes)| resource.apply(changes)));
        self.cache.advance(revision, applied);
    }

    /// After a failure: the events to continue with, or `None` when there will be none.
    async fn resume(&self, mut failure: StoreError) -> Option<Events> {
        loop {
            failure = match failure {
                StoreError::Closed => return None,
                StoreError::Compacted { oldest } => {
                    tracing::warn!(oldest, applied = self.cache.applied(), "starting over from a snapshot");
                    match self.start_over().await {
                        Ok(events) => return Some(events),
                        Err(error) => error,
                    }
                }
                error => {
                    tracing::error!(%error, "following the store failed");
                    tokio::time::sleep(RETRY).await;
                    match self.store.watch(self.cache.applied()).await {
                        Ok(events) => return Some(events),
                        Err(error) => error,
                    }
                }
            };
        }
    }

    async fn start_over(&self) -> Result<Events, StoreError> {
        let snapshot = self.store.snapshot().await?;
        let head = snapshot.revision;
        let events = self.store.watch(head).await?;
        for resource in self.cache.resources() {
            resource.forget_unreadable();
        }
        let mut found: HashMap<GroupResource, Vec<Arc<Object>>> = HashMap::new();
        for Entry { key, value, revision, .. } in snapshot.entries {
            let Some((resource, object)) = read_current(&self.cache, &key, revision, &value) else { continue };
            found.entry(resource.name.clone()).or_default().push(Arc::new(object));
        }
        self.cache.raise_floor(head);
        for resource in self.cache.resources() {
            resource.reset(head, found.remove(&resource.name).unwrap_or_default());
        }
        self.cache.forget_waiting(head);
        Ok(events)
    }
}

#[cfg(test)]
mod tests;
