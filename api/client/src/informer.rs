//! Informers: one list-and-watch of a kind fills one cache, which every part of the process reads.
//!
//! [`Informers`] returns the [`Informer`] of a kind and starts its watch at the first request. The watch continues as long as
//! the informer has a user. kube's `watcher` lists, watches, resumes after a broken connection and lists again only after 410
//! Gone; [`reflector`] reduces its events to changes of the cache.
//!
//! A consumer gets changes in one of two ways, client-go's event handler and its queue of keys:
//!
//! - [`Informer::on_change`] calls a function with the states before and after each change. Such a function chooses keys
//!   for a work queue; it does not act on what it is given.
//! - [`Informer::changes`] is a stream of batches of keys. Each key is in a batch once, however often its object changed.
//!   The consumer reads the present state from the informer. So a slow consumer costs one key for each object at most.
//!
//! Both begin with the objects that the cache holds already.
//!
//! A [`Reflector`] watches without a cache: it fills a [`Store`] of the reader's own.

mod cache;
mod changes;
mod key;
mod kinds;
mod metrics;
mod reflector;
mod shared;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api_tasks::Tasks;
use kube::Api;
use tokio_util::sync::DropGuard;

pub use cache::Index;
use cache::SharedCache;
pub use cache::{Change, Registration, WriteMark};
pub use changes::{Batch, Changes};
pub use key::ObjectKey;
pub use kinds::{BY_CLAIM_UID, BY_CONTROLLER, BY_NODE, BY_POOL, BY_RESERVED_NAME, BY_SERVICE, BY_VOLUME, LAST_APPLIED, UNBOUND_BY_CLASS};
pub use reflector::{Reflector, Store, Watched};
pub use shared::Informers;

/// A kind that an informer can hold.
pub trait Cached: Watched {
    /// Ways to find objects beside namespace and name.
    const INDEXES: &'static [Index<Self>] = &[];

    /// Drops what no reader needs before the object is stored. `managedFields` and the annotation of `kubectl apply` are
    /// dropped from every kind.
    fn trim(&mut self) {}
}

/// The cache of one kind. Clones share it; the watch ends with the last of them.
pub struct Informer<K> {
    cache: Arc<SharedCache<K>>,
    /// Stops the watch when the last clone is dropped.
    watch: Arc<Option<DropGuard>>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self { cache: Arc::clone(&self.cache), watch: Arc::clone(&self.watch) }
    }
}

impl<K: Cached> Informer<K> {
    /// Starts a watch of these objects as a task of `tasks`, in a cache that is not shared with others.
    ///
    /// `kind` names the informer in logs and metrics; `fields` is a field selector, empty for all objects.
    pub fn start(api: Api<K>, kind: &str, fields: &str, tasks: &Tasks) -> Self {
        Self::start_with(api, kind, fields, tasks, cache::trim)
    }

    /// As [`Informer::start`], for a reader that needs whole objects: only `managedFields` is dropped.
    pub fn start_untrimmed(api: Api<K>, kind: &str, fields: &str, tasks: &Tasks) -> Self {
        Self::start_with(api, kind, fields, tasks, |object| object.meta_mut().managed_fields = None)
    }

    fn start_with(api: Api<K>, kind: &str, fields: &str, tasks: &Tasks, trim: fn(&mut K)) -> Self {
        let cache = Arc::new(SharedCache::new(kind, trim));
        let watch = reflector::spawn(api, fields, tasks, Arc::clone(&cache), Arc::clone(&cache.stats));
        Self { cache, watch: Arc::new(Some(watch)) }
    }

    /// An informer without a watch, filled by [`Informer::put`] and [`Informer::remove`]: for tests.
    pub fn detached() -> Self {
        Self { cache: Arc::new(SharedCache::new("detached", cache::trim)), watch: Arc::new(None) }
    }

    /// The object of that key.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.cache.read(|objects| objects.get(key))
    }

    /// All objects, ordered by namespace and name.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.cache.read(|objects| objects.list())
    }

    /// The objects of one namespace, ordered by name.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.cache.read(|objects| objects.in_namespace(namespace))
    }

    /// The objects that have this value in an index of [`Cached::INDEXES`].
    pub fn indexed(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        self.cache.read(|objects| objects.indexed(index, value))
    }

    /// Calls `handler` for each present object, and after each change until the registration is dropped.
    ///
    /// The handler runs in the task of the watch: it must be short, and must not register or drop handlers.
    pub fn on_change(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) -> Registration<K> {
        SharedCache::register(&self.cache, Box::new(handler))
    }

    /// The keys of all present objects, and of those that change from now on.
    pub fn changes(&self) -> Changes<K> {
        Changes::new(self.clone())
    }

    /// Whether the first list is in the cache.
    pub fn is_synced(&self) -> bool {
        self.cache.is_synced()
    }

    /// Waits until the first list is in the cache.
    pub async fn synced(&self) {
        self.cache.synced().await;
    }

    /// Waits until the watch has delivered a write of this kind, so that the cache is at least as new as the write's
    /// answer. Returns false when `limit` has passed before that, for example because the object was removed again.
    pub async fn wait_for_write(&self, written: &K, limit: Duration) -> bool {
        let revision = cache::revision(written.meta());
        tokio::time::timeout(limit, self.cache.reached(revision)).await.is_ok()
    }

    /// Marks a write of this kind by its answer. Call it after the write.
    pub fn mark(&self, written: &K) -> WriteMark {
        self.cache.mark(cache::revision(written.meta()))
    }

    /// Whether the cache is at least as new as a write: the watch has delivered the write or a later change, or a list that began after the
    /// write was marked.
    pub fn has_delivered(&self, mark: &WriteMark) -> bool {
        self.cache.has_delivered(mark)
    }

    /// Stores an object as the watch does.
    pub fn put(&self, object: K) {
        self.cache.put(object);
    }

    /// Removes an object as the watch does.
    pub fn remove(&self, key: &ObjectKey) {
        self.cache.evict(key, 0);
    }
}
