//! Every current object in memory, and what changed of late: all reads are answered from here.
//!
//! One feeder follows the store's log and is the only one to change anything. A write is answered
//! when the feeder has applied it, so that whoever was answered sees the write in every later read.
//! Each object's bytes are made once; gets, lists and watchers share them, and so does the store's tail.
//! Parsed values are kept of the latest only.

mod delivery;
mod event;
mod feed;
mod filter;
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

use crate::at_rest::{AtRest, AtRestError};

pub(crate) use delivery::{Delivery, Told};
pub(crate) use event::{Before, Change, Event, write_line};
pub(crate) use feed::start;
pub(crate) use filter::Filter;
pub(crate) use object::{Object, encode};
#[cfg(test)]
pub(crate) use resource::Applied;
pub(crate) use resource::{Beginning, Behind, Page, Resource, Since, Subscription, TooOld, Unreadable};
pub(crate) use ring::Place;

use recent::Recent;

/// How long a read waits for a revision that is not there yet: upstream's `blockTimeout`.
const FUTURE_WAIT: Duration = Duration::from_secs(3);

/// The cache.
#[derive(Debug)]
pub(crate) struct Cache {
    resources: RwLock<HashMap<GroupResource, Arc<Resource>>>,
    /// Nothing is known of what happened up to this revision.
    floor: AtomicU64,
    /// Lists of the past may be as of this revision or a later one.
    lists_from: AtomicU64,
    /// Everything up to this revision has been applied and handed to the watchers.
    applied: watch::Sender<u64>,
    waiting: Mutex<Waiting>,
    /// How often the feeder was asked for a sign of life, and which of these it answered last.
    asked: watch::Sender<u64>,
    answered: watch::Sender<u64>,
    /// What is being written, by the address of the stored bytes: the feeder need not open it.
    written: Mutex<HashMap<usize, Written>>,
    at_rest: AtRest,
    recent: Arc<Recent>,
}

/// A write under way.
#[derive(Debug)]
struct Written {
    /// As the store gets it.
    stored: Bytes,
    /// As it was before it was sealed.
    plain: Bytes,
}

#[derive(Debug, Default)]
struct Waiting {
    by_revision: HashMap<u64, oneshot::Sender<Option<Arc<Event>>>>,
    closed: bool,
}

/// The feeder has ended: the server is stopping or the store failed for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

/// The revision asked for did not come about in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotYet {
    pub(crate) current: u64,
}

/// Takes a write's announcement back when the write failed.
pub(crate) struct Announced<'a> {
    cache: &'a Cache,
    address: usize,
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.cache.written.lock().remove(&self.address);
    }
}

impl Cache {
    pub(crate) fn new(floor: u64, at_rest: AtRest) -> Self {
        let (resources, waiting, written) = (RwLock::default(), Mutex::default(), Mutex::default());
        let (floor, applied, recent) = (AtomicU64::new(floor), watch::Sender::new(floor), Arc::default());
        let (asked, answered) = (watch::Sender::new(0), watch::Sender::new(0));
        Self { resources, floor, lists_from: AtomicU64::new(0), applied, waiting, asked, answered, written, at_rest, recent }
    }

    /// The resource of that name, made when first asked for.
    pub(crate) fn resource(&self, name: &GroupResource) -> Arc<Resource> {
        if let Some(resource) = self.resources.read().get(name) {
            return Arc::clone(resource);
        }
        let mut resources = self.resources.write();
        // Read only now: one that is made while the floor rises is either among those that rise with it, or above it.
        let floor = self.floor.load(Ordering::Acquire);
        Arc::clone(resources.entry(name.clone()).or_insert_with(|| Arc::new(Resource::new(name.clone(), floor))))
    }

    /// All resources that have or had objects.
    pub(crate) fn resources(&self) -> Vec<Arc<Resource>> {
        self.resources.read().values().cloned().collect()
    }

    /// The revision up to which everything is applied.
    pub(crate) fn applied(&self) -> u64 {
        *self.applied.borrow()
    }

    /// The oldest revision as of which lists are still answered.
    pub(crate) fn lists_from(&self) -> u64 {
        self.lists_from.load(Ordering::Acquire)
    }

    /// Lists as of earlier revisions are refused from now on, as if history before this one were compacted.
    pub(crate) fn expire_lists(&self, before: u64) {
        self.lists_from.fetch_max(before, Ordering::AcqRel);
    }

    /// Tells of every revision that is applied.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.applied.subscribe()
    }

    /// Whether the feeder has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.waiting.lock().closed
    }

    /// Whether the feeder's loop turns, also where there is nothing to apply.
    pub(crate) async fn is_fed(&self) -> bool {
        let mut question = 0;
        self.asked.send_modify(|asked| {
            *asked += 1;
            question = *asked;
        });
        let mut answered = self.answered.subscribe();
        matches!(tokio::time::timeout(FUTURE_WAIT, answered.wait_for(|answered| *answered >= question)).await, Ok(Ok(_)))
    }

    /// For the feeder: what it is asked, beginning with what was asked before it began.
    fn questions(&self) -> watch::Receiver<u64> {
        let mut questions = self.asked.subscribe();
        questions.mark_changed();
        questions
    }

    /// Waits for a revision for as long as upstream does.
    pub(crate) async fn wait_for(&self, revision: u64) -> Result<(), NotYet> {
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

    /// After a write that came too late: waits until the write that was faster is seen, so that the
    /// next attempt does not start from the same state again.
    pub(crate) async fn overtaken(&self, resource: &Resource, namespace: &str, name: &str, revision: u64) {
        let is_seen = self.until(|| resource.get(namespace, name).is_none_or(|object| object.revision != revision));
        if tokio::time::timeout(FUTURE_WAIT, is_seen).await.is_err() {
            tracing::warn!(resource = %resource.name, namespace, name, "a faster write is not seen");
        }
    }

    /// Waits until something is so in the cache; for ever when nothing comes any more.
    pub(crate) async fn until(&self, is_so: impl Fn() -> bool) {
        let mut applied = self.applied.subscribe();
        while !is_so() {
            if applied.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// An object of which the cache's history knows no more.
    pub(crate) fn object(&self, place: Place, revision: u64, plain: Bytes) -> Result<Object, serde_json::Error> {
        Object::new(place, revision, plain, None, &self.recent)
    }

    /// The bytes to store for an object.
    pub(crate) fn seal(&self, resource: &GroupResource, key: &str, plain: &Bytes) -> Result<Bytes, AtRestError> {
        self.at_rest.seal(resource, key, plain)
    }

    /// Announces what is about to be written, so that it need not be opened again.
    pub(crate) fn announce(&self, stored: &Bytes, plain: &Bytes) -> Announced<'_> {
        let address = stored.as_ptr() as usize;
        self.written.lock().insert(address, Written { stored: stored.clone(), plain: plain.clone() });
        Announced { cache: self, address }
    }

    fn take_written(&self, stored: &Bytes) -> Option<Written> {
        let mut written = self.written.lock();
        let address = stored.as_ptr() as usize;
        // The announced bytes are alive, so nothing else can stand at their address.
        let is_there = written.get(&address).is_some_and(|announced| announced.stored.len() == stored.len());
        if is_there { written.remove(&address) } else { None }
    }

    /// Waits until a write is applied and answers its event; `None` if that is forgotten already.
    pub(crate) async fn settled(&self, resource: &Resource, revision: u64) -> Result<Option<Arc<Event>>, Closed> {
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

    /// Resources that are made from now on know nothing of what happened up to a revision.
    fn raise_floor(&self, revision: u64) {
        self.floor.store(revision, Ordering::Release);
    }

    /// Of what led to the objects that there are at a revision nothing is known.
    fn forget_past(&self, revision: u64) {
        self.raise_floor(revision);
        self.resources().iter().for_each(|resource| resource.forget_past(revision));
    }

    /// After starting over: what was written up to `revision` is in the cache, its events are not.
    fn forget_waiting(&self, revision: u64) {
        self.applied.send_replace(revision);
        let mut waiting = self.waiting.lock();
        let done: Vec<u64> = waiting.by_revision.keys().copied().filter(|at| *at <= revision).collect();
        for writer in done.iter().filter_map(|at| waiting.by_revision.remove(at)) {
            let _ = writer.send(None);
        }
    }

    /// Ends every watch, those that come later included; reads and writes go on.
    pub(crate) fn end_watches(&self) {
        for resource in self.resources() {
            resource.close();
        }
    }

    /// Nothing will come any more: ends watches and waiting writers.
    fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        waiting.by_revision.clear();
        drop(waiting);
        self.end_watches();
    }
}
