//! The recent events of one resource, for watches that start at a resource version and for lists
//! of the past.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::event::{Before, Event};
use super::object::Object;

/// The highest number of events of one resource in the history.
const EVENTS_LEN_MAX: usize = 4_096;
/// The bounds of the bytes of past objects that the events of one resource keep: half as many as its current objects have,
/// within these bounds.
const EVENTS_BYTES_MIN: usize = 4 << 20;
const EVENTS_BYTES_MAX: usize = 16 << 20;
/// The size of an event beside its past object.
const EVENT_BYTES: usize = 512;

/// Namespace (empty for cluster-scoped kinds) and name of an object.
pub type NamespacedName = (Arc<str>, Arc<str>);

/// The earlier objects at some keys; `None` where there was none.
pub(crate) type Undone = BTreeMap<NamespacedName, Option<Arc<Object>>>;

/// A bounded history.
#[derive(Debug)]
pub(crate) struct Ring {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Watches may start after this revision.
    floor: u64,
    /// Lists may be as of this revision.
    list_floor: u64,
}

impl Ring {
    /// An empty ring, whose history begins after `floor`.
    pub(crate) fn new(floor: u64) -> Self {
        Self { events: VecDeque::new(), bytes: 0, floor, list_floor: floor }
    }

    /// The oldest revision after which a watch may start.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// The next event of a resource whose current objects have so many bytes.
    pub(crate) fn push(&mut self, event: Arc<Event>, live_bytes: usize) {
        if matches!(event.before, Before::Forgotten) {
            self.list_floor = event.revision;
            if event.after.is_none() {
                // The deletions of this gap are unknown: history starts here.
                *self = Self::new(event.revision);
                return;
            }
        }
        self.bytes += weight(&event);
        self.events.push_back(event);
        let bytes_max = (live_bytes / 2).clamp(EVENTS_BYTES_MIN, EVENTS_BYTES_MAX);
        while self.events.len() > EVENTS_LEN_MAX || self.bytes > bytes_max {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= weight(&oldest);
            self.floor = oldest.revision;
            self.list_floor = self.list_floor.max(oldest.revision);
        }
    }

    /// The events after a revision; `None` when the ring does not have all of them.
    pub(crate) fn after(&self, revision: u64) -> Option<impl Iterator<Item = &Arc<Event>>> {
        let from = self.events.partition_point(|event| event.revision <= revision);
        (revision >= self.floor).then(|| self.events.range(from..))
    }

    /// The event of exactly that revision.
    pub(crate) fn at(&self, revision: u64) -> Option<&Arc<Event>> {
        let at = self.events.binary_search_by_key(&revision, |event| event.revision).ok()?;
        self.events.get(at)
    }

    /// The objects to put back (or, where `None`, to remove) to get the resource as it was at a revision; `None` when the
    /// history does not reach back to it.
    pub(crate) fn undo_to(&self, revision: u64) -> Option<Undone> {
        if revision < self.list_floor {
            return None;
        }
        let mut undone = BTreeMap::new();
        for event in self.events.iter().rev().take_while(|event| event.revision > revision) {
            let Some(object) = event.after.as_ref().or(event.old()) else { continue };
            let name = (Arc::clone(&object.namespace), Arc::clone(&object.name));
            undone.insert(name, event.old().cloned());
        }
        Some(undone)
    }
}

/// An event keeps the object before it alive; the one after it is current, or is the one before a later event.
fn weight(event: &Event) -> usize {
    event.old().map_or(0, |object| object.json_len()) + EVENT_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(name: &str, revision: u64) -> Arc<Object> {
        let value = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}});
        let stored = super::super::object::encode(&value);
        Arc::new(Object::new(("ns".into(), name.into()), revision, stored, None, &Arc::default()).expect("JSON"))
    }

    #[test]
    fn forgets_the_oldest_and_says_so() {
        let mut ring = Ring::new(0);
        let many = EVENTS_LEN_MAX as u64 + 10;
        for revision in 1..=many {
            ring.push(Arc::new(Event::new(revision, Before::Nothing, Some(object("x", revision)))), 0);
        }
        assert_eq!(ring.floor(), 10);
        assert!(ring.after(9).is_none());
        assert_eq!(ring.after(10).expect("known").next().map(|e| e.revision), Some(11));
        assert_eq!(ring.after(many).expect("known").count(), 0);
    }

    #[test]
    fn the_past_can_be_put_back() {
        let mut ring = Ring::new(0);
        ring.push(Arc::new(Event::new(1, Before::Nothing, Some(object("a", 1)))), 0);
        ring.push(Arc::new(Event::new(2, Before::Object(object("a", 1)), Some(object("a", 2)))), 0);
        ring.push(Arc::new(Event::new(3, Before::Nothing, Some(object("b", 3)))), 0);
        ring.push(Arc::new(Event::new(4, Before::Object(object("a", 2)), None)), 0);
        let shape = |revision| -> Vec<(String, Option<u64>)> {
            let undone = ring.undo_to(revision).expect("known");
            undone.iter().map(|((_, name), object)| (name.to_string(), object.as_ref().map(|o| o.revision))).collect()
        };
        assert_eq!(shape(4), []);
        assert_eq!(shape(3), [("a".to_owned(), Some(2))]);
        assert_eq!(shape(1), [("a".to_owned(), Some(1)), ("b".to_owned(), None)]);
        assert_eq!(shape(0), [("a".to_owned(), None), ("b".to_owned(), None)]);
    }

    #[test]
    fn a_deletion_of_something_forgotten_starts_history_anew() {
        let mut ring = Ring::new(0);
        ring.push(Arc::new(Event::new(1, Before::Nothing, Some(object("a", 1)))), 0);
        ring.push(Arc::new(Event::new(2, Before::Forgotten, None)), 0);
        assert!(ring.after(1).is_none());
        assert!(ring.after(2).is_some());
    }

    #[test]
    fn large_objects_leave_less_history() {
        let value = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x"}, "data": {"x": "x".repeat(1 << 20)}});
        let large = |revision| {
            let stored = super::super::object::encode(&value);
            Arc::new(Object::new(("ns".into(), "x".into()), revision, stored, None, &Arc::default()).expect("JSON"))
        };
        for (live_bytes, expected) in [(0, 3), (12 << 20, 5), (1 << 30, 15)] {
            let mut ring = Ring::new(0);
            for revision in 1..40 {
                ring.push(Arc::new(Event::new(revision, Before::Object(large(revision)), Some(large(revision + 1)))), live_bytes);
            }
            assert_eq!(ring.events.len(), expected, "{live_bytes}");
        }
    }
}
