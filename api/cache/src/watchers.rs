//! The watchers of a resource, indexed by what they watch, so that an event reaches only those that it may concern.

use std::collections::HashMap;
use std::sync::Arc;

use super::delivery::Delivery;
use super::event::Event;
use super::filter::Filter;
use super::queue::{Receiver, Sender, queue};

/// The narrowest of the indexes that covers a filter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Everything,
    Namespace(Arc<str>),
    Object(Arc<str>, Arc<str>),
    Node(Arc<str>),
}

impl Key {
    /// The index key of a filter. Cluster-scoped objects have the namespace `""`.
    fn of(filter: &Filter, namespaced: bool, node_indexed: bool) -> Self {
        let namespace = if namespaced { filter.namespace.as_deref() } else { Some("") };
        match (namespace, filter.name(), filter.node()) {
            (Some(namespace), Some(name), _) => Self::Object(namespace.into(), name.into()),
            (_, _, Some(node)) if node_indexed => Self::Node(node.into()),
            (Some(namespace), None, _) if namespaced => Self::Namespace(namespace.into()),
            _ => Self::Everything,
        }
    }
}

#[derive(Debug)]
struct Watcher {
    id: u64,
    filter: Arc<Filter>,
    sender: Sender,
}

/// The watchers of one resource.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    by_key: HashMap<Key, Vec<Watcher>>,
    next_id: u64,
    closed: bool,
}

impl Watchers {
    /// Registers a watcher; returns how to remove it, and its events. After [`Watchers::close`] there are none.
    pub(crate) fn add(&mut self, filter: Arc<Filter>, namespaced: bool, node_indexed: bool) -> ((Key, u64), Receiver) {
        let (sender, receiver) = queue();
        let (key, id) = (Key::of(&filter, namespaced, node_indexed), self.next_id);
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

    /// Ends every watch, future ones included.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.end_all();
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.values().map(Vec::len).sum()
    }

    /// Delivers events, in order, to the watchers that they concern. Watchers that are too slow are ended.
    pub(crate) fn dispatch(&mut self, events: &[Arc<Event>], node_indexed: bool) {
        if self.by_key.is_empty() {
            return;
        }
        let mut by_key: HashMap<Key, Vec<&Arc<Event>>> = HashMap::new();
        for event in events {
            for key in keys(event, node_indexed) {
                if self.by_key.contains_key(&key) {
                    by_key.entry(key).or_default().push(event);
                }
            }
        }
        for (key, events) in by_key {
            self.tell(&key, &events);
        }
    }

    fn tell(&mut self, key: &Key, events: &[&Arc<Event>]) {
        let Some(watchers) = self.by_key.get_mut(key) else { return };
        let deliveries = |filter: &Filter| {
            Delivery::of(events.iter().filter_map(|event| event.change_for(filter).map(|change| (change, Arc::clone(event)))))
        };
        // Watchers of everything under a key get the same deliveries.
        let mut plain: Option<Vec<Arc<Delivery>>> = None;
        watchers.retain(|Watcher { filter, sender, .. }| match filter.is_plain() {
            true => sender.send(plain.get_or_insert_with(|| deliveries(filter))),
            false => {
                let own = deliveries(filter);
                own.is_empty() || sender.send(&own)
            }
        });
        if watchers.is_empty() {
            self.by_key.remove(key);
        }
    }
}

/// The keys of the watchers that an event may concern.
fn keys(event: &Event, node_indexed: bool) -> impl Iterator<Item = Key> {
    let object = event.after.as_ref().or(event.old());
    let of_object = object.map(|object| {
        let (namespace, name) = (&object.namespace, &object.name);
        [Key::Everything, Key::Namespace(Arc::clone(namespace)), Key::Object(Arc::clone(namespace), Arc::clone(name))]
    });
    let node = |object: Option<&Arc<super::object::Object>>| object.filter(|_| node_indexed)?.node().cloned();
    let now = node(event.after.as_ref());
    let was = node(event.old()).filter(|was| now.as_ref() != Some(was));
    of_object.into_iter().flatten().chain([now, was].into_iter().flatten().map(Key::Node))
}
