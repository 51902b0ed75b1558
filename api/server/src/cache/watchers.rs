//! Who watches a resource, found by what they watch: an event asks only those whom it may concern.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::event::{Change, Event};
use super::filter::Filter;

/// Events that wait for one watcher; one that lets more pile up is ended and has to start again.
const WAITING_LEN_MAX: usize = 1_024;

/// A change on its way to one watcher.
pub(crate) type Delivery = (Change, Arc<Event>);

/// The narrowest of the indexes that covers a filter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Everything,
    Namespace(Arc<str>),
    Object(Arc<str>, Arc<str>),
    Node(Arc<str>),
}

impl Key {
    /// Where a watch with this filter belongs. Cluster-scoped objects have the namespace `""`.
    fn of(filter: &Filter, namespaced: bool) -> Self {
        let namespace = if namespaced { filter.namespace.as_deref() } else { Some("") };
        match (namespace, filter.name(), filter.node()) {
            (Some(namespace), Some(name), _) => Self::Object(namespace.into(), name.into()),
            (_, _, Some(node)) => Self::Node(node.into()),
            (Some(namespace), None, None) if namespaced => Self::Namespace(namespace.into()),
            _ => Self::Everything,
        }
    }
}

#[derive(Debug)]
struct Watcher {
    id: u64,
    filter: Arc<Filter>,
    sender: mpsc::Sender<Delivery>,
}

/// The watchers of one resource.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    by_key: HashMap<Key, Vec<Watcher>>,
    next_id: u64,
    closed: bool,
}

impl Watchers {
    /// Registers a watcher; answers how to remove it and where its events come out. After
    /// [`Watchers::close`] nothing comes out.
    pub(crate) fn add(&mut self, filter: Arc<Filter>, namespaced: bool) -> ((Key, u64), mpsc::Receiver<Delivery>) {
        let (sender, receiver) = mpsc::channel(WAITING_LEN_MAX);
        let (key, id) = (Key::of(&filter, namespaced), self.next_id);
        self.next_id += 1;
        if !self.closed {
            self.by_key.entry(key.clone()).or_default().push(Watcher { id, filter, sender });
        }
        ((key, id), receiver)
    }

    pub(crate) fn remove(&mut self, (key, id): &(Key, u64)) {
        if let Some(watchers) = self.by_key.get_mut(key) {
            watchers.retain(|watcher| watcher.id != *id);
            if watchers.is_empty() {
                self.by_key.remove(key);
            }
        }
    }

    /// Ends every watch.
    pub(crate) fn end_all(&mut self) {
        self.by_key.clear();
    }

    /// Ends every watch, those that come later included.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.end_all();
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.values().map(Vec::len).sum()
    }

    /// Hands an event to those whom it concerns. Those who are too slow are ended.
    pub(crate) fn dispatch(&mut self, event: &Arc<Event>, node_indexed: bool) {
        if self.by_key.is_empty() {
            return;
        }
        let Some(object) = event.after.as_ref().or(event.old()) else { return };
        self.tell(&Key::Everything, event);
        self.tell(&Key::Namespace(Arc::clone(&object.namespace)), event);
        self.tell(&Key::Object(Arc::clone(&object.namespace), Arc::clone(&object.name)), event);
        if !node_indexed {
            return;
        }
        let now = event.after.as_ref().and_then(|object| object.node());
        let was = event.old().and_then(|object| object.node());
        for node in [now, was.filter(|was| Some(*was) != now)].into_iter().flatten() {
            self.tell(&Key::Node(Arc::clone(node)), event);
        }
    }

    fn tell(&mut self, key: &Key, event: &Arc<Event>) {
        let Some(watchers) = self.by_key.get_mut(key) else { return };
        watchers.retain(|watcher| match event.change_for(&watcher.filter) {
            Some(change) => watcher.sender.try_send((change, Arc::clone(event))).is_ok(),
            None => true,
        });
        if watchers.is_empty() {
            self.by_key.remove(key);
        }
    }
}
