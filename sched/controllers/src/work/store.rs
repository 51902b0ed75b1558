//! A cache of all objects of one kind, filled by one watch, read by every controller.
//!
//! Objects are trimmed to what controllers read before they are kept. Handlers hear of each change
//! after the cache has it; what a handler sees is for choosing keys, never for acting on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use api_client::error::{chain, is_everyday};
use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher;
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::meta;

/// Namespace and name of an object; the namespace is empty for cluster-scoped kinds.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Namespace, or empty.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// A key of these two.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of an object.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A kind that controllers keep in a cache.
pub trait Cached: kube::Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static {
    /// Only objects that this field selector finds are watched; empty, all.
    const FIELDS: &'static str = "";

    /// Drops what no controller reads, beyond `managedFields`.
    fn trim(&mut self) {}

    /// A second way to find the object, for example a Pod by its Node.
    fn place(&self) -> Option<&str> {
        None
    }
}

/// One change of one object: added, changed or removed.
#[derive(Debug)]
pub struct Change<K> {
    /// What the cache held before.
    pub old: Option<Arc<K>>,
    /// What it holds now.
    pub new: Option<Arc<K>>,
}

impl<K> Change<K> {
    /// The newest known state.
    pub fn latest(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref())
    }

    /// Both states.
    pub fn both(&self) -> impl Iterator<Item = &Arc<K>> {
        self.old.iter().chain(self.new.iter())
    }
}

type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// The cache.
pub struct Store<K> {
    objects: RwLock<Objects<K>>,
    handlers: RwLock<Vec<Handler<K>>>,
    synced: watch::Sender<bool>,
}

struct Objects<K> {
    by_key: BTreeMap<ObjectKey, Arc<K>>,
    by_controller: HashMap<String, BTreeSet<ObjectKey>>,
    by_place: HashMap<String, BTreeSet<ObjectKey>>,
}

impl<K: Cached> Default for Store<K> {
    fn default() -> Self {
        let objects = Objects { by_key: BTreeMap::new(), by_controller: HashMap::new(), by_place: HashMap::new() };
        Self { objects: RwLock::new(objects), handlers: RwLock::new(Vec::new()), synced: watch::Sender::new(false) }
    }
}

impl<K: Cached> Store<K> {
    /// The object of that key.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.objects.read().by_key.get(key).cloned()
    }

    /// All objects, by namespace and name.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.objects.read().by_key.values().cloned().collect()
    }

    /// The objects of one namespace.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let start = ObjectKey::new(namespace, "");
        let objects = self.objects.read();
        let range = objects.by_key.range((Bound::Included(start), Bound::Unbounded));
        range.take_while(|(key, _)| key.namespace == namespace).map(|(_, object)| Arc::clone(object)).collect()
    }

    /// The objects whose controller has that UID; with an empty UID, those without a controller.
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        let objects = self.objects.read();
        objects.resolve(objects.by_controller.get(uid))
    }

    /// The objects at that [`Cached::place`].
    pub fn at(&self, place: &str) -> Vec<Arc<K>> {
        let objects = self.objects.read();
        objects.resolve(objects.by_place.get(place))
    }

    /// Calls `handler` after each change from now on. Only before the watch starts.
    pub fn on_change(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) {
        self.handlers.write().push(Box::new(handler));
    }

    /// Waits until the first list is in the cache.
    pub async fn synced(&self) {
        // The sender lives as long as `self`, so an error cannot come.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Puts an object into the cache at once. For tests and for fakes; the watch does the same.
    pub fn put(&self, object: K) {
        let change = self.objects.write().put(trimmed(object));
        self.tell(&change);
    }

    /// Removes an object from the cache.
    pub fn remove(&self, key: &ObjectKey) {
        let old = self.objects.write().remove(key);
        if old.is_some() {
            self.tell(&Change { old, new: None });
        }
    }

    /// Follows a watch until it ends; errors are logged, the stream itself retries.
    pub async fn follow(&self, events: impl Stream<Item = watcher::Result<watcher::Event<K>>>) {
        let mut events = std::pin::pin!(events);
        let mut listed: Option<BTreeSet<ObjectKey>> = None;
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Init) => listed = Some(BTreeSet::new()),
                Ok(watcher::Event::InitApply(object)) => {
                    if let Some(listed) = &mut listed {
                        listed.insert(ObjectKey::of(object.meta()));
                    }
                    self.put(object);
                }
                Ok(watcher::Event::InitDone) => {
                    self.keep_only(&listed.take().unwrap_or_default());
                    self.synced.send_replace(true);
                }
                Ok(watcher::Event::Apply(object)) => self.put(object),
                Ok(watcher::Event::Delete(object)) => self.remove(&ObjectKey::of(object.meta())),
                Err(error) if is_everyday(&error) => tracing::debug!(kind = %K::kind(&()), error = chain(&error), "watch interrupted"),
                Err(error) => tracing::warn!(kind = %K::kind(&()), error = chain(&error), "watch interrupted"),
            }
        }
    }

    /// After a new list: what is not in it is gone.
    fn keep_only(&self, listed: &BTreeSet<ObjectKey>) {
        let gone: Vec<ObjectKey> = self.objects.read().by_key.keys().filter(|key| !listed.contains(key)).cloned().collect();
        for key in gone {
            self.remove(&key);
        }
    }

    fn tell(&self, change: &Change<K>) {
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && old.meta().resource_version == new.meta().resource_version
            && new.meta().resource_version.is_some()
        {
            return;
        }
        for handler in self.handlers.read().iter() {
            handler(change);
        }
    }
}

impl<K: Cached> Objects<K> {
    fn put(&mut self, object: K) -> Change<K> {
        let key = ObjectKey::of(object.meta());
        let old = self.remove(&key);
        let new = Arc::new(object);
        self.by_controller.entry(meta::controller_uid(new.meta()).to_owned()).or_default().insert(key.clone());
        if let Some(place) = new.place() {
            self.by_place.entry(place.to_owned()).or_default().insert(key.clone());
        }
        self.by_key.insert(key, Arc::clone(&new));
        Change { old, new: Some(new) }
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Arc<K>> {
        let old = self.by_key.remove(key)?;
        unindex(&mut self.by_controller, meta::controller_uid(old.meta()), key);
        if let Some(place) = old.place() {
            unindex(&mut self.by_place, place, key);
        }
        Some(old)
    }

    fn resolve(&self, keys: Option<&BTreeSet<ObjectKey>>) -> Vec<Arc<K>> {
        keys.into_iter().flatten().filter_map(|key| self.by_key.get(key).cloned()).collect()
    }
}

fn unindex(index: &mut HashMap<String, BTreeSet<ObjectKey>>, value: &str, key: &ObjectKey) {
    if let Some(keys) = index.get_mut(value) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(value);
        }
    }
}

fn trimmed<K: Cached>(mut object: K) -> K {
    let meta = object.meta_mut();
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(meta::LAST_APPLIED);
    }
    object.trim();
    object
}
