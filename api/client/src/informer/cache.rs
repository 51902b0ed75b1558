//! The objects of one kind with their indexes, and the handlers that are called after each change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Weak};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use super::kinds::LAST_APPLIED;
use super::metrics::Stats;
use super::reflector::Store;
use super::{Cached, ObjectKey};

/// A second way to find the objects of a kind, for example Pods by their Node.
pub struct Index<K: 'static> {
    /// The index name for [`Informer::indexed`](super::Informer::indexed).
    pub name: &'static str,
    /// The value of an object; an object without one is not in the index.
    pub value: fn(&K) -> Option<&str>,
}

/// One change of one object: added, changed or removed.
#[derive(Debug)]
pub struct Change<K> {
    /// The state in the cache before the change.
    pub old: Option<Arc<K>>,
    /// The state in the cache now.
    pub new: Option<Arc<K>>,
}

impl<K> Change<K> {
    /// The newest state of the object.
    pub fn latest(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref())
    }

    /// Both states.
    pub fn both(&self) -> impl Iterator<Item = &Arc<K>> {
        self.old.iter().chain(self.new.iter())
    }
}

pub(super) type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// Calls a handler until it is dropped.
#[must_use = "the handler is called until the registration is dropped"]
pub struct Registration<K> {
    cache: Weak<SharedCache<K>>,
    number: u64,
}

impl<K> Drop for Registration<K> {
    fn drop(&mut self) {
        if let Some(cache) = self.cache.upgrade() {
            let handler = cache.handlers.lock().by_number.remove(&self.number);
            // After the lock: the handler may hold the last clone of another informer.
            drop(handler);
        }
    }
}

/// The cache, as the watch that writes and the readers share it.
pub(super) struct SharedCache<K> {
    objects: RwLock<Objects<K>>,
    /// Locked while a change is stored and delivered, so that every handler gets each change once and in order.
    handlers: Mutex<Handlers<K>>,
    synced: watch::Sender<bool>,
    /// The highest resource version that the watch has delivered. The objects of a list count when it is complete: until then, others are
    /// as they were before it.
    revision: watch::Sender<u64>,
    lists: Mutex<Lists>,
    /// Drops the fields that no reader needs.
    trim: fn(&mut K),
    pub(super) stats: Arc<Stats>,
}

/// The lists of the watch.
#[derive(Default)]
struct Lists {
    begun: u64,
    /// The number of the last complete one.
    completed: u64,
    /// The highest resource version of a list that is not complete.
    revision: Option<u64>,
}

/// A write that the cache may not know yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriteMark {
    revision: u64,
    /// The lists that had begun.
    lists: u64,
}

struct Handlers<K> {
    by_number: BTreeMap<u64, Handler<K>>,
    next: u64,
}

impl<K> SharedCache<K> {
    pub(super) fn new(kind: &str, trim: fn(&mut K)) -> Self {
        let objects = Objects { by_key: BTreeMap::new(), by_index: Vec::new() };
        Self {
            objects: RwLock::new(objects),
            handlers: Mutex::new(Handlers { by_number: BTreeMap::new(), next: 0 }),
            synced: watch::Sender::new(false),
            revision: watch::Sender::new(0),
            lists: Mutex::default(),
            trim,
            stats: Arc::new(Stats::new(kind)),
        }
    }

    pub(super) fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    pub(super) async fn synced(&self) {
        // The sender lives as long as `self`, so there is no error.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Waits until the watch has delivered this resource version or a later one.
    pub(super) async fn reached(&self, revision: u64) {
        let _ = self.revision.subscribe().wait_for(|reached| *reached >= revision).await;
    }

    pub(super) fn mark(&self, revision: u64) -> WriteMark {
        WriteMark { revision, lists: self.lists.lock().begun }
    }

    /// Whether the watch has delivered the write, or a list that began after it.
    pub(super) fn has_delivered(&self, mark: &WriteMark) -> bool {
        *self.revision.borrow() >= mark.revision || self.lists.lock().completed > mark.lists
    }

    pub(super) fn subscribe_synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }
}

impl<K: Cached> SharedCache<K> {
    pub(super) fn read<T>(&self, read: impl FnOnce(&Objects<K>) -> T) -> T {
        read(&self.objects.read())
    }

    pub(super) fn register(cache: &Arc<Self>, handler: Handler<K>) -> Registration<K> {
        let mut handlers = cache.handlers.lock();
        let present = cache.objects.read().list();
        for object in present {
            handler(&Change { old: None, new: Some(object) });
        }
        let number = handlers.next;
        handlers.next += 1;
        handlers.by_number.insert(number, handler);
        Registration { cache: Arc::downgrade(cache), number }
    }

    pub(super) fn evict(&self, key: &ObjectKey, revision: u64) {
        let handlers = self.handlers.lock();
        let old = self.objects.write().remove(key);
        self.delivered(revision);
        if old.is_some() {
            handlers.deliver(Change { old, new: None });
        }
    }

    /// The watch has delivered a change of this resource version; a deletion has one of its own. The cache has the change already.
    fn delivered(&self, revision: u64) {
        self.stats.set_objects(self.objects.read().by_key.len());
        if let Some(listed) = &mut self.lists.lock().revision {
            *listed = revision.max(*listed);
            return;
        }
        self.revision.send_if_modified(|reached| {
            let is_newer = revision > *reached;
            *reached = revision.max(*reached);
            is_newer
        });
    }
}

impl<K: Cached> Store<K> for SharedCache<K> {
    type Key = ObjectKey;

    fn key(object: &K) -> ObjectKey {
        ObjectKey::from(object.meta())
    }

    fn put(&self, mut object: K) {
        (self.trim)(&mut object);
        // A copy has no spare room. Lists that were read have room for at least four elements, and an element may have a kilobyte.
        let object = object.clone();
        let revision = revision(object.meta());
        let handlers = self.handlers.lock();
        let change = self.objects.write().put(object);
        self.delivered(revision);
        handlers.deliver(change);
    }

    fn begin_list(&self) {
        let mut lists = self.lists.lock();
        lists.begun += 1;
        lists.revision = Some(0);
    }

    fn remove(&self, object: &K) {
        self.evict(&ObjectKey::from(object.meta()), revision(object.meta()));
    }

    fn complete(&self, listed: &BTreeSet<ObjectKey>) {
        let handlers = self.handlers.lock();
        let mut objects = self.objects.write();
        let gone: Vec<ObjectKey> = objects.by_key.keys().filter(|key| !listed.contains(key)).cloned().collect();
        let gone: Vec<_> = gone.iter().filter_map(|key| objects.remove(key)).collect();
        drop(objects);
        let listed = {
            let mut lists = self.lists.lock();
            lists.completed = lists.begun;
            lists.revision.take()
        };
        self.delivered(listed.unwrap_or_default());
        gone.into_iter().for_each(|old| handlers.deliver(Change { old: Some(old), new: None }));
        drop(handlers);
        self.synced.send_replace(true);
    }
}

impl<K: Cached> Handlers<K> {
    fn deliver(&self, change: Change<K>) {
        let Change { old: Some(old), new: Some(new) } = &change else { return self.call(&change) };
        let (old, new) = (old.meta(), new.meta());
        if old.uid != new.uid {
            // The watch missed that the object was removed and created again.
            self.call(&Change { old: change.old, new: None });
            self.call(&Change { old: None, new: change.new });
        } else if old.resource_version != new.resource_version || new.resource_version.is_none() {
            self.call(&change);
        }
    }

    fn call(&self, change: &Change<K>) {
        self.by_number.values().for_each(|handler| handler(change));
    }
}

/// The objects of a kind.
pub(super) struct Objects<K> {
    by_key: BTreeMap<ObjectKey, Arc<K>>,
    /// In the order of [`Cached::INDEXES`]: keys by value.
    by_index: Vec<HashMap<String, BTreeSet<ObjectKey>>>,
}

impl<K: Cached> Objects<K> {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.by_key.get(key).cloned()
    }

    pub(super) fn list(&self) -> Vec<Arc<K>> {
        self.by_key.values().cloned().collect()
    }

    pub(super) fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let range = self.by_key.range((Bound::Included(ObjectKey::new(namespace, "")), Bound::Unbounded));
        range.take_while(|(key, _)| key.namespace == namespace).map(|(_, object)| Arc::clone(object)).collect()
    }

    pub(super) fn indexed(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        let position = K::INDEXES.iter().position(|candidate| candidate.name == index);
        debug_assert!(position.is_some(), "the kind has no index {index}");
        let keys = position.and_then(|at| self.by_index.get(at)).and_then(|by_value| by_value.get(value));
        keys.into_iter().flatten().filter_map(|key| self.get(key)).collect()
    }

    fn put(&mut self, object: K) -> Change<K> {
        let key = ObjectKey::from(object.meta());
        let new = Arc::new(object);
        let old = match self.by_key.get_mut(&key) {
            Some(present) => Some(std::mem::replace(present, Arc::clone(&new))),
            None => self.by_key.insert(key.clone(), Arc::clone(&new)),
        };
        self.by_index.resize_with(K::INDEXES.len(), HashMap::new);
        for (index, by_value) in K::INDEXES.iter().zip(&mut self.by_index) {
            let (before, now) = (old.as_deref().and_then(index.value), (index.value)(&new));
            if before != now {
                before.into_iter().for_each(|value| remove_key(by_value, value, &key));
                if let Some(value) = now {
                    by_value.entry(value.to_owned()).or_default().insert(key.clone());
                }
            }
        }
        Change { old, new: Some(new) }
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Arc<K>> {
        let old = self.by_key.remove(key)?;
        for (index, by_value) in K::INDEXES.iter().zip(&mut self.by_index) {
            (index.value)(&old).into_iter().for_each(|value| remove_key(by_value, value, key));
        }
        Some(old)
    }
}

/// Removes a key from the entry of an index.
fn remove_key(by_value: &mut HashMap<String, BTreeSet<ObjectKey>>, value: &str, key: &ObjectKey) {
    let Some(keys) = by_value.get_mut(value) else { return };
    keys.remove(key);
    if keys.is_empty() {
        by_value.remove(value);
    }
}

/// The resource version as a number; 0 when there is none.
pub(super) fn revision(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// Drops the fields of an object that no reader of its kind needs.
pub(super) fn trim<K: Cached>(object: &mut K) {
    let meta = object.meta_mut();
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(LAST_APPLIED);
    }
    object.trim();
}
