//! The objects of one resource in memory, in name order, with their recent history and watchers. Only the feeder changes it;
//! all others read.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api_model::kind::GroupResource;
use parking_lot::{Mutex, RwLock};

use super::delivery::Delivery;
use super::event::{Before, Event};
use super::filter::Filter;
use super::object::Object;
use super::queue::Receiver;
use super::ring::{NamespacedName, Ring, Undone};
use super::watchers::{Key, Watchers};

type ByName = BTreeMap<Arc<str>, Arc<Object>>;

/// One resource.
#[derive(Debug)]
pub struct Resource {
    /// Its group and plural name.
    pub name: GroupResource,
    node_indexed: bool,
    objects: RwLock<Objects>,
    watchers: Mutex<Watchers>,
    /// The revision of the last change.
    revision: AtomicU64,
    /// Stored objects that cannot be read, by namespace and name.
    unreadable: RwLock<BTreeMap<(String, String), Unreadable>>,
}

/// Something that is stored and cannot be read.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// The revision of the write.
    pub revision: u64,
    /// The error that reading it gave.
    pub why: String,
}

#[derive(Debug)]
struct Objects {
    by_namespace: BTreeMap<Arc<str>, ByName>,
    by_node: HashMap<Arc<str>, BTreeMap<NamespacedName, Arc<Object>>>,
    revision: u64,
    /// Of all that are current.
    bytes: usize,
    ring: Ring,
}

/// Some objects in name order, as of a revision.
#[derive(Debug, Default)]
pub struct Page {
    /// The objects, in order of namespace and name.
    pub items: Vec<Arc<Object>>,
    /// The revision that the page shows.
    pub revision: u64,
    /// If there is more: the last position of this page.
    pub more: Option<NamespacedName>,
    /// How many objects follow, if that is known.
    pub remaining: Option<usize>,
}

/// The position at which a page begins.
#[derive(Clone, Debug)]
pub struct Behind {
    /// The last name of the page before it.
    pub name: NamespacedName,
    /// The number of objects after that position, if it was counted before: counting again for each page would make a long list
    /// quadratic.
    pub left: Option<usize>,
}

/// A change from the store.
pub struct Applied<'a> {
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// Name of the object or resource.
    pub name: &'a str,
    /// The revision of the write.
    pub revision: u64,
    /// The object after it; `None` when it is gone.
    pub after: Option<Object>,
}

/// The start of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// Only future events.
    Now,
    /// With every current object.
    Everything,
    /// After a revision.
    Revision(u64),
}

/// A revision is older than the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooOld {
    /// The oldest revision after which a watch may start.
    pub oldest: u64,
}

/// The beginning of a watch.
#[derive(Debug, Default)]
pub struct Beginning {
    /// The present objects.
    pub state: Vec<Arc<Object>>,
    /// Events, in order.
    pub events: Vec<Arc<Delivery>>,
    /// The revision that `state` and `events` lead up to.
    pub revision: u64,
}

/// Events as they come; ends when the watcher is too slow. Dropping it unregisters the watcher.
#[derive(Debug)]
pub struct Subscription {
    /// Events, in order.
    pub events: Receiver,
    resource: Arc<Resource>,
    registered: (Key, u64),
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.resource.watchers.lock().remove(&self.registered);
    }
}

impl Resource {
    /// An empty resource, whose history begins after the revision `floor`.
    pub fn new(name: GroupResource, floor: u64) -> Self {
        let node_indexed = name.group.is_empty() && name.resource == "pods";
        Self {
            name,
            node_indexed,
            objects: RwLock::new(Objects::new(0, floor)),
            watchers: Mutex::default(),
            revision: AtomicU64::new(0),
            unreadable: RwLock::default(),
        }
    }

    /// The object of that name; the namespace is empty for cluster-scoped kinds.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.objects.read().by_namespace.get(namespace)?.get(name).cloned()
    }

    /// An object that is stored and cannot be read.
    pub fn unreadable(&self, namespace: &str, name: &str) -> Option<Unreadable> {
        let unreadable = self.unreadable.read();
        if unreadable.is_empty() {
            return None;
        }
        unreadable.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Namespace and name of an object that cannot be read, and why: the first of a namespace or of all.
    pub fn unreadable_in(&self, namespace: Option<&str>) -> Option<(String, String, String)> {
        let unreadable = self.unreadable.read();
        let ((namespace, name), found) = unreadable.iter().find(|((at, _), _)| namespace.is_none_or(|wanted| wanted == at))?;
        Some((namespace.clone(), name.clone(), found.why.clone()))
    }

    /// Feeder: an object that cannot be read.
    pub fn put_unreadable(&self, namespace: &str, name: &str, unreadable: Unreadable) {
        self.unreadable.write().insert((namespace.to_owned(), name.to_owned()), unreadable);
    }

    /// Feeder: an object that can be read, or is gone; returns whether it could not be read before.
    pub fn put_readable(&self, namespace: &str, name: &str) -> bool {
        !self.unreadable.read().is_empty() && self.unreadable.write().remove(&(namespace.to_owned(), name.to_owned())).is_some()
    }

    /// Feeder: an object has changed, or is gone, and the change is unknown. No watcher can get it: history starts here, and
    /// watches begin again.
    pub fn lose(&self, namespace: &str, name: &str, revision: u64) -> Arc<Event> {
        let mut watchers = self.watchers.lock();
        {
            let mut objects = self.objects.write();
            objects.remove(namespace, name);
            objects.revision = revision;
            objects.ring = Ring::new(revision);
            self.revision.store(revision, Ordering::Release);
        }
        watchers.end_all();
        Arc::new(Event::new(revision, Before::Forgotten, None))
    }

    /// Feeder: the unreadable objects will be determined again.
    pub fn forget_unreadable(&self) {
        self.unreadable.write().clear();
    }

    /// The revision of the last change.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// The number of objects.
    pub fn objects_len(&self) -> usize {
        self.objects.read().len(None)
    }

    /// How many watches are open.
    pub fn watchers_len(&self) -> usize {
        self.watchers.lock().len()
    }

    /// Every object that matches, as of at least revision `applied`.
    pub fn list(&self, filter: &Filter, applied: u64) -> Page {
        let (mut items, revision) = {
            let objects = self.objects.read();
            (objects.candidates(filter, self.node_indexed), objects.revision.max(applied))
        };
        if !filter.is_plain() {
            items.retain(|object| filter.matches(object));
        }
        Page { items, revision, more: None, remaining: None }
    }

    /// At most `limit` matching objects after a position, as they were at a revision; `None` when the history does not reach
    /// back to it.
    pub fn past(&self, filter: &Filter, revision: u64, behind: Option<&Behind>, limit: Option<usize>) -> Option<Page> {
        let found = {
            let objects = self.objects.read();
            let undone = objects.ring.undo_to(revision)?;
            objects.behind(filter, &undone, behind, candidates_max(filter, limit))
        };
        Some(found.into_page(filter, revision, limit))
    }

    /// The same at present, which is at least at revision `applied`.
    pub fn present(&self, filter: &Filter, applied: u64, behind: Option<&Behind>, limit: Option<usize>) -> Page {
        let (found, revision) = {
            let objects = self.objects.read();
            let found = objects.behind(filter, &Undone::new(), behind, candidates_max(filter, limit));
            (found, objects.revision.max(applied))
        };
        found.into_page(filter, revision, limit)
    }

    /// Starts a watch. There is no gap between the initial events and the later ones.
    pub fn watch(
        self: &Arc<Self>,
        filter: Filter,
        since: Since,
        namespaced: bool,
        applied: u64,
    ) -> Result<(Beginning, Subscription), TooOld> {
        let filter = Arc::new(filter);
        let mut beginning = Beginning::default();
        let mut watchers = self.watchers.lock();
        let past = {
            let objects = self.objects.read();
            beginning.revision = objects.revision.max(applied);
            match since {
                Since::Now => Vec::new(),
                Since::Everything => {
                    beginning.state = objects.candidates(&filter, self.node_indexed);
                    Vec::new()
                }
                Since::Revision(revision) => {
                    let oldest = objects.ring.floor();
                    objects.ring.after(revision).ok_or(TooOld { oldest })?.cloned().collect::<Vec<_>>()
                }
            }
        };
        let (registered, events) = watchers.add(Arc::clone(&filter), namespaced, self.node_indexed);
        drop(watchers);
        beginning.state.retain(|object| filter.matches(object));
        beginning.events = Delivery::of(past.into_iter().filter_map(|event| event.change_for(&filter).map(|change| (change, event))));
        Ok((beginning, Subscription { events, resource: Arc::clone(self), registered }))
    }

    /// The event of that revision, if it is of this resource and remembered.
    pub fn event_at(&self, revision: u64) -> Option<Arc<Event>> {
        self.objects.read().ring.at(revision).cloned()
    }

    /// The events after a revision, in order; `None` when the history does not have all of them.
    pub fn events_after(&self, revision: u64) -> Option<Vec<Arc<Event>>> {
        Some(self.objects.read().ring.after(revision)?.cloned().collect())
    }

    /// Feeder: an object that existed at the start.
    pub fn load(&self, object: Arc<Object>) {
        let mut objects = self.objects.write();
        objects.revision = objects.revision.max(object.revision);
        self.revision.store(objects.revision, Ordering::Release);
        objects.insert(object, self.node_indexed);
    }

    /// Feeder: an event of before the start.
    pub fn remember(&self, event: Event) {
        let mut objects = self.objects.write();
        let bytes = objects.bytes;
        objects.ring.push(Arc::new(event), bytes);
    }

    /// Feeder: the history before the present objects, at that revision, is unknown.
    pub fn forget_past(&self, floor: u64) {
        self.objects.write().ring = Ring::new(floor);
    }

    /// Feeder: changes that were committed together, in order, for all watchers that they concern.
    pub fn apply(&self, changes: Vec<Applied<'_>>) -> Vec<Arc<Event>> {
        let mut watchers = self.watchers.lock();
        let events: Vec<Arc<Event>> = {
            let mut objects = self.objects.write();
            let events = changes.into_iter().map(|change| objects.apply(change, self.node_indexed)).collect();
            self.revision.store(objects.revision, Ordering::Release);
            events
        };
        watchers.dispatch(&events, self.node_indexed);
        events
    }

    /// Feeder: drops the history up to a revision, at which these objects are all there are, and ends every watch, since events
    /// were missed. No reader sees the resource without its objects.
    pub fn reset(&self, floor: u64, present: Vec<Arc<Object>>) {
        let mut all = Objects::new(floor, floor);
        for object in present {
            all.insert(object, self.node_indexed);
        }
        let mut watchers = self.watchers.lock();
        *self.objects.write() = all;
        self.revision.store(floor, Ordering::Release);
        watchers.end_all();
    }

    /// Ends every watch: the kind is gone, or its schema has changed.
    pub fn end_watches(&self) {
        self.watchers.lock().end_all();
    }

    /// Feeder: no more events will come.
    pub fn close(&self) {
        self.watchers.lock().close();
    }
}

/// Objects that may match, and the number of further ones.
struct Candidates {
    objects: Vec<Arc<Object>>,
    rest: usize,
}

/// The number of candidates for a page: without selectors every one counts, and one more shows whether there is a next page.
fn candidates_max(filter: &Filter, limit: Option<usize>) -> usize {
    limit.filter(|_| filter.is_plain()).map_or(usize::MAX, |limit| limit.saturating_add(1))
}

impl Candidates {
    fn into_page(self, filter: &Filter, revision: u64, limit: Option<usize>) -> Page {
        let plain = filter.is_plain();
        let mut matching = self.objects.into_iter().filter(|object| plain || filter.matches(object));
        let items: Vec<_> = matching.by_ref().take(limit.unwrap_or(usize::MAX)).collect();
        let has_more = matching.next().is_some();
        let more = items.last().filter(|_| has_more).map(|last| (Arc::clone(&last.namespace), Arc::clone(&last.name)));
        let remaining = (plain && more.is_some()).then_some(self.rest + 1);
        Page { items, revision, more, remaining }
    }
}

impl Objects {
    fn new(revision: u64, floor: u64) -> Self {
        Self { by_namespace: BTreeMap::new(), by_node: HashMap::new(), revision, bytes: 0, ring: Ring::new(floor) }
    }

    fn apply(&mut self, Applied { namespace, name, revision, after }: Applied<'_>, node_indexed: bool) -> Arc<Event> {
        let before = self.remove(namespace, name).map_or(Before::Nothing, Before::Object);
        let event = Arc::new(Event::new(revision, before, after.map(Arc::new)));
        if let Some(object) = &event.after {
            self.insert(Arc::clone(object), node_indexed);
        }
        self.revision = revision;
        self.ring.push(Arc::clone(&event), self.bytes);
        event
    }

    fn insert(&mut self, object: Arc<Object>, node_indexed: bool) {
        self.bytes += object.json_len();
        if node_indexed && let Some(node) = object.node() {
            let name = (Arc::clone(&object.namespace), Arc::clone(&object.name));
            self.by_node.entry(Arc::clone(node)).or_default().insert(name, Arc::clone(&object));
        }
        let names = match self.by_namespace.get_mut(&object.namespace) {
            Some(names) => names,
            None => self.by_namespace.entry(Arc::clone(&object.namespace)).or_default(),
        };
        names.insert(Arc::clone(&object.name), object);
    }

    fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let names = self.by_namespace.get_mut(namespace)?;
        let object = names.remove(name)?;
        self.bytes -= object.json_len();
        if names.is_empty() {
            self.by_namespace.remove(namespace);
        }
        if !self.by_node.is_empty()
            && let Some(node) = object.node()
            && let Some(names) = self.by_node.get_mut(node)
        {
            names.remove(&(Arc::clone(&object.namespace), Arc::clone(&object.name)));
            if names.is_empty() {
                self.by_node.remove(node);
            }
        }
        Some(object)
    }

    /// The objects among which those that match are found.
    fn candidates(&self, filter: &Filter, node_indexed: bool) -> Vec<Arc<Object>> {
        if let (Some(namespace), Some(name)) = (&filter.namespace, filter.name()) {
            return self.by_namespace.get(namespace.as_str()).and_then(|names| names.get(name)).cloned().into_iter().collect();
        }
        if node_indexed && let Some(node) = filter.node() {
            return self.by_node.get(node).into_iter().flat_map(BTreeMap::values).cloned().collect();
        }
        match &filter.namespace {
            Some(namespace) => self.by_namespace.get(namespace.as_str()).into_iter().flat_map(BTreeMap::values).cloned().collect(),
            None => self.by_namespace.values().flat_map(BTreeMap::values).cloned().collect(),
        }
    }

    /// Up to `take` objects of the filter's namespace behind a place, with some changes undone.
    fn behind(&self, filter: &Filter, undone: &Undone, behind: Option<&Behind>, take: usize) -> Candidates {
        let namespace = filter.namespace.as_deref();
        let mut found = self.merged(namespace, undone, behind.map(|behind| &behind.name));
        let objects: Vec<Arc<Object>> = found.by_ref().take(take).cloned().collect();
        let known = match behind {
            Some(behind) => behind.left,
            None => undone.is_empty().then(|| self.len(namespace)),
        };
        let rest = match known {
            _ if objects.len() < take => 0,
            Some(all) => all.saturating_sub(objects.len()),
            None => found.count(),
        };
        Candidates { objects, rest }
    }

    /// How many objects there are, of a namespace or of all.
    fn len(&self, namespace: Option<&str>) -> usize {
        match namespace {
            Some(namespace) => self.by_namespace.get(namespace).map_or(0, BTreeMap::len),
            None => self.by_namespace.values().map(BTreeMap::len).sum(),
        }
    }

    /// The objects behind a place, in order, with some changes undone.
    fn merged<'a>(
        &'a self,
        namespace: Option<&'a str>,
        undone: &'a Undone,
        behind: Option<&'a NamespacedName>,
    ) -> impl Iterator<Item = &'a Arc<Object>> {
        let is_behind = move |name: &NamespacedName| behind.is_none_or(|behind| name > behind);
        let is_in_namespace = move |at: &str| namespace.is_none_or(|wanted| wanted == at);
        let mut put_back = undone
            .iter()
            .filter(move |(name, _)| is_in_namespace(&name.0) && is_behind(name))
            .filter_map(|(_, object)| object.as_ref())
            .peekable();
        let mut present = self
            .range(namespace, behind)
            .filter(|object| undone.is_empty() || !undone.contains_key(&(Arc::clone(&object.namespace), Arc::clone(&object.name))))
            .peekable();
        std::iter::from_fn(move || match (present.peek(), put_back.peek()) {
            (Some(a), Some(b)) if (&b.namespace, &b.name) < (&a.namespace, &a.name) => put_back.next(),
            (Some(_), _) => present.next(),
            (None, _) => put_back.next(),
        })
    }

    fn range<'a>(&'a self, namespace: Option<&'a str>, behind: Option<&'a NamespacedName>) -> impl Iterator<Item = &'a Arc<Object>> {
        let first = match (namespace, behind) {
            (Some(namespace), _) => Bound::Included(namespace),
            (None, Some((namespace, _))) => Bound::Included(&**namespace),
            (None, None) => Bound::Unbounded,
        };
        self.by_namespace
            .range::<str, _>((first, Bound::Unbounded))
            .take_while(move |(at, _)| namespace.is_none_or(|wanted| wanted == &***at))
            .flat_map(move |(at, names)| {
                let from = match behind {
                    Some((namespace, name)) if namespace == at => Bound::Excluded(&**name),
                    _ => Bound::Unbounded,
                };
                names.range::<str, _>((from, Bound::Unbounded)).map(|(_, object)| object)
            })
    }
}
