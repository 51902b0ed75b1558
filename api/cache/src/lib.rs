//! Every current object in memory, and the recent changes: all reads are answered from here.
//!
//! One feeder ([`start`]) follows the store's log and is the only writer. A write is answered when the feeder has applied it,
//! so every later read sees the write. The bytes of an object are made once; gets, lists, watchers and the store's tail share
//! them. Parsed values exist of the latest objects only.
//!
//! The store has the bytes as [`AtRest`] encrypts them, under the keys of [`key`]. The crate does not know HTTP.

mod at_rest;
mod delivery;
mod event;
mod feed;
mod filter;
pub mod key;
mod object;
mod queue;
mod recent;
mod resource;
mod ring;
mod view;
mod watchers;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api_model::kind::GroupResource;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{oneshot, watch};

pub use at_rest::{AtRest, AtRestError, EncryptionError};
pub use delivery::{Delivery, FrameStatus};
pub use event::{Before, Change, Event, write_line};
pub use feed::start;
pub use filter::Filter;
pub use object::{Object, encode};
pub use queue::Receiver;
pub use resource::{Applied, Beginning, Behind, Page, Resource, Since, Subscription, TooOld, Unreadable};
pub use ring::NamespacedName;

use recent::Recent;

/// How long a read waits for a revision that does not exist yet: upstream's `blockTimeout`.
const FUTURE_WAIT: Duration = Duration::from_secs(3);

/// The cache.
#[derive(Debug)]
pub struct Cache {
    resources: RwLock<HashMap<GroupResource, Arc<Resource>>>,
    /// The history up to this revision is unknown.
    floor: AtomicU64,
    /// Lists of the past may be at this revision or a later one.
    lists_from: AtomicU64,
    /// Everything up to this revision has been applied and handed to the watchers.
    applied: watch::Sender<u64>,
    waiting: Mutex<Waiting>,
    /// The newest heartbeat request to the feeder, and the one that it answered last.
    requested: watch::Sender<u64>,
    answered: watch::Sender<u64>,
    /// The writes under way, by key: the feeder need not decrypt their bytes.
    written: Mutex<HashMap<Arc<str>, Vec<Written>>>,
    at_rest: AtRest,
    recent: Arc<Recent>,
}

/// A write under way.
#[derive(Debug)]
struct Written {
    /// The bytes for the store.
    stored: Bytes,
    /// The same object before encryption.
    plain: Bytes,
}

#[derive(Debug, Default)]
struct Waiting {
    by_revision: HashMap<u64, oneshot::Sender<Option<Arc<Event>>>>,
    closed: bool,
}

/// The feeder has ended: the server is stopping or the store failed for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

/// The requested revision did not arrive in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotYet {
    /// The revision that the cache has reached.
    pub current: u64,
}

/// Withdraws the announcement of a write when it is dropped.
pub struct Announced<'a> {
    cache: &'a Cache,
    key: Arc<str>,
    stored: Bytes,
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.cache.take_written(&self.key, &self.stored);
    }
}

impl Cache {
    /// An empty cache without history up to the revision `floor`.
    pub fn new(floor: u64, at_rest: AtRest) -> Self {
        let (resources, waiting, written) = (RwLock::default(), Mutex::default(), Mutex::default());
        let (floor, applied, recent) = (AtomicU64::new(floor), watch::Sender::new(floor), Arc::default());
        let (requested, answered) = (watch::Sender::new(0), watch::Sender::new(0));
        Self { resources, floor, lists_from: AtomicU64::new(0), applied, waiting, requested, answered, written, at_rest, recent }
    }

    /// The resource of that name, created at the first request.
    pub fn resource(&self, name: &GroupResource) -> Arc<Resource> {
        if let Some(resource) = self.resources.read().get(name) {
            return Arc::clone(resource);
        }
        let mut resources = self.resources.write();
        // Read only now: a resource that is created while the floor rises is either among those that rise with it, or above it.
        let floor = self.floor.load(Ordering::Acquire);
        Arc::clone(resources.entry(name.clone()).or_insert_with(|| Arc::new(Resource::new(name.clone(), floor))))
    }

    /// All resources that have or had objects.
    pub fn resources(&self) -> Vec<Arc<Resource>> {
        self.resources.read().values().cloned().collect()
    }

    /// The revision up to which everything is applied.
    pub fn applied(&self) -> u64 {
        *self.applied.borrow()
    }

    /// The oldest revision at which lists are still answered.
    pub fn lists_from(&self) -> u64 {
        self.lists_from.load(Ordering::Acquire)
    }

    /// Lists at earlier revisions are rejected from now on, as if the earlier history were compacted.
    pub fn expire_lists(&self, before: u64) {
        self.lists_from.fetch_max(before, Ordering::AcqRel);
    }

    /// Reports every revision that is applied.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.applied.subscribe()
    }

    /// Whether the feeder has ended.
    pub fn is_closed(&self) -> bool {
        self.waiting.lock().closed
    }

    /// Whether the feeder's loop runs, also when there is nothing to apply.
    pub async fn is_fed(&self) -> bool {
        let mut question = 0;
        self.requested.send_modify(|requested| {
            *requested += 1;
            question = *requested;
        });
        let mut answered = self.answered.subscribe();
        matches!(tokio::time::timeout(FUTURE_WAIT, answered.wait_for(|answered| *answered >= question)).await, Ok(Ok(_)))
    }

    /// For the feeder: the heartbeat requests, beginning with those from before its start.
    fn questions(&self) -> watch::Receiver<u64> {
        let mut questions = self.requested.subscribe();
        questions.mark_changed();
        questions
    }

    /// Waits for a revision for as long as upstream does.
    pub async fn wait_for(&self, revision: u64) -> Result<(), NotYet> {
        if self.applied() >= revision {
            return Ok(());
        }
        let mut applied = self.applied.subscribe();
        let reached = applied.wait_for(|applied| *applied >= revision);
        match tokio::time::timeout(FUTURE_WAIT, reached).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(NotYet { current: self.applied() }),
        }
    }

    /// After a write that lost a race: waits until the cache has the write that won, so that the next attempt does not start
    /// from the same state again.
    pub async fn overtaken(&self, resource: &Resource, namespace: &str, name: &str, revision: u64) {
        let is_seen = self.until(|| resource.get(namespace, name).is_none_or(|object| object.revision != revision));
        if tokio::time::timeout(FUTURE_WAIT, is_seen).await.is_err() {
            tracing::warn!(resource = %resource.name, namespace, name, "a faster write is not seen");
        }
    }

    /// Waits until a condition holds in the cache; for ever when no event comes any more.
    pub async fn until(&self, is_so: impl Fn() -> bool) {
        let mut applied = self.applied.subscribe();
        while !is_so() {
            if applied.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// An object whose history the cache no longer has.
    pub fn object(&self, name: NamespacedName, revision: u64, plain: Bytes) -> Result<Object, serde_json::Error> {
        Object::new(name, revision, plain, None, &self.recent)
    }

    /// The bytes to store for an object.
    pub fn seal(&self, resource: &GroupResource, key: &str, plain: &Bytes) -> Result<Bytes, AtRestError> {
        self.at_rest.seal(resource, key, plain)
    }

    /// Announces a write, so that the feeder need not decrypt its bytes.
    pub fn announce(&self, key: &Arc<str>, stored: &Bytes, plain: &Bytes) -> Announced<'_> {
        let write = Written { stored: stored.clone(), plain: plain.clone() };
        self.written.lock().entry(Arc::clone(key)).or_default().push(write);
        Announced { cache: self, key: Arc::clone(key), stored: stored.clone() }
    }

    /// Removes the announced write of these bytes to that key, and returns its plain bytes. Writes of equal bytes to
    /// one key have equal plain bytes, so it does not matter which of them is removed.
    fn take_written(&self, key: &str, stored: &Bytes) -> Option<Bytes> {
        let mut written = self.written.lock();
        let writes = written.get_mut(key)?;
        let at = writes.iter().position(|write| write.stored == *stored)?;
        let Written { plain, .. } = writes.swap_remove(at);
        if writes.is_empty() {
            written.remove(key);
        }
        Some(plain)
    }

    /// Waits until a write is applied and returns its event; `None` if the event is no longer in the history.
    pub async fn settled(&self, resource: &Resource, revision: u64) -> Result<Option<Arc<Event>>, Closed> {
        let settled = {
            let mut waiting = self.waiting.lock();
            if self.applied() >= revision {
                drop(waiting);
                return Ok(resource.event_at(revision));
            }
            if waiting.closed {
                return Err(Closed);
            }
            let (sender, receiver) = oneshot::channel();
            waiting.by_revision.insert(revision, sender);
            receiver
        };
        settled.await.map_err(|_| Closed)
    }

    /// Everything up to `revision` is applied; `events` are the last of it.
    fn advance(&self, revision: u64, events: Vec<Arc<Event>>) {
        self.applied.send_replace(revision);
        let mut waiting = self.waiting.lock();
        if waiting.by_revision.is_empty() {
            return;
        }
        for event in events {
            if let Some(writer) = waiting.by_revision.remove(&event.revision) {
                // A writer whose client went away does not wait any more.
                let _ = writer.send(Some(event));
            }
        }
    }

    /// Resources that are created from now on have no history up to this revision.
    fn raise_floor(&self, revision: u64) {
        self.floor.store(revision, Ordering::Release);
    }

    /// The history before the present objects at a revision is unknown.
    fn forget_past(&self, revision: u64) {
        self.raise_floor(revision);
        self.resources().iter().for_each(|resource| resource.forget_past(revision));
    }

    /// After starting over: everything written up to `revision` is in the cache, its events are not.
    fn forget_waiting(&self, revision: u64) {
        self.applied.send_replace(revision);
        let mut waiting = self.waiting.lock();
        let done: Vec<u64> = waiting.by_revision.keys().copied().filter(|at| *at <= revision).collect();
        for writer in done.iter().filter_map(|at| waiting.by_revision.remove(at)) {
            let _ = writer.send(None);
        }
    }

    /// Ends every watch, future ones included; reads and writes continue.
    pub fn end_watches(&self) {
        for resource in self.resources() {
            resource.close();
        }
    }

    /// No event will come any more: ends watches and waiting writers.
    fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        waiting.by_revision.clear();
        drop(waiting);
        self.end_watches();
    }
}
