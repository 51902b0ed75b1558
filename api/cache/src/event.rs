//! One change of one object, shared by all of its watchers.

use std::sync::{Arc, OnceLock};

use bytes::{BufMut, BytesMut};

use super::filter::Filter;
use super::object::Object;

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object is new in the selection.
    Added,
    /// The object changed and stays in the selection.
    Modified,
    /// The object has left the selection.
    Deleted,
}

impl Change {
    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// The state before a change.
#[derive(Debug)]
pub enum Before {
    /// Nothing: the change created the object.
    Nothing,
    /// This object.
    Object(Arc<Object>),
    /// A state that is older than the history.
    Forgotten,
}

/// One change.
#[derive(Debug)]
pub struct Event {
    /// The revision of the write.
    pub revision: u64,
    /// The state before the change.
    pub before: Before,
    /// The object after the change; `None` when it is gone.
    pub after: Option<Arc<Object>>,
    /// The last state, with this event's revision: the object of DELETED.
    gone: OnceLock<Arc<Object>>,
}

impl Event {
    /// A change at a revision.
    pub fn new(revision: u64, before: Before, after: Option<Arc<Object>>) -> Self {
        Self { revision, before, after, gone: OnceLock::new() }
    }

    /// The object before the change, if it is known.
    pub fn old(&self) -> Option<&Arc<Object>> {
        match &self.before {
            Before::Object(object) => Some(object),
            Before::Nothing | Before::Forgotten => None,
        }
    }

    /// The event that a watcher with this filter gets, if any: an object that leaves the selection is deleted for the watcher,
    /// one that enters it is added.
    pub fn change_for(&self, filter: &Filter) -> Option<Change> {
        let now = self.after.as_ref().is_some_and(|object| filter.matches(object));
        let was = match &self.before {
            Before::Nothing => false,
            Before::Object(object) => filter.matches(object),
            // It may have been in the selection; a second DELETED does no harm, a missing one does.
            Before::Forgotten => true,
        };
        match (was, now) {
            (false, true) => Some(Change::Added),
            (true, true) => Some(Change::Modified),
            (true, false) => Some(Change::Deleted),
            (false, false) => None,
        }
    }

    /// The object that an event of that type carries.
    pub fn object(&self, change: Change) -> Option<&Arc<Object>> {
        match change {
            Change::Added | Change::Modified => self.after.as_ref(),
            Change::Deleted => match self.old() {
                Some(old) => Some(self.gone.get_or_init(|| Arc::new(old.at_revision(self.revision)))),
                None => self.after.as_ref(),
            },
        }
    }

    /// Writes the line on the wire.
    pub fn write_line(&self, change: Change, out: &mut BytesMut) {
        if let Some(object) = self.object(change) {
            write_line(change.word(), out, |out| object.write(out));
        }
    }

    /// About how long that line is.
    pub fn line_len(&self, change: Change) -> usize {
        self.object(change).map_or(0, |object| object.json_len() + LINE_BYTES)
    }
}

/// The highest number of bytes of a line beside its object.
const LINE_BYTES: usize = 32;

/// Writes `{"type":…,"object":…}` and a line feed.
pub fn write_line(word: &str, out: &mut BytesMut, object: impl FnOnce(&mut BytesMut)) {
    out.put_slice(b"{\"type\":\"");
    out.put_slice(word.as_bytes());
    out.put_slice(b"\",\"object\":");
    object(out);
    out.put_slice(b"}\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use api_model::selector::Selector;
    use serde_json::{Value, json};

    fn labelled(label: &str, revision: u64) -> Arc<Object> {
        let value = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x", "labels": {"app": label}}});
        let stored = super::super::object::encode(&value);
        Arc::new(Object::new(("ns".into(), "x".into()), revision, stored, None, &Arc::default()).expect("JSON"))
    }

    #[test]
    fn selector_transitions_are_additions_and_deletions() {
        let filter = Filter { labels: Selector::parse("app=a").expect("parses"), ..Filter::default() };
        let (a, b) = (labelled("a", 1), labelled("b", 1));
        let cases = [
            (Before::Nothing, Some(&a), Some(Change::Added)),
            (Before::Nothing, Some(&b), None),
            (Before::Object(Arc::clone(&a)), Some(&a), Some(Change::Modified)),
            (Before::Object(Arc::clone(&a)), Some(&b), Some(Change::Deleted)),
            (Before::Object(Arc::clone(&b)), Some(&a), Some(Change::Added)),
            (Before::Object(Arc::clone(&b)), Some(&b), None),
            (Before::Object(Arc::clone(&a)), None, Some(Change::Deleted)),
            (Before::Object(Arc::clone(&b)), None, None),
            (Before::Forgotten, Some(&b), Some(Change::Deleted)),
        ];
        for (before, after, expected) in cases {
            let event = Event::new(2, before, after.cloned());
            assert_eq!(event.change_for(&filter), expected, "{event:?}");
        }
    }

    #[test]
    fn a_deletion_carries_the_old_object_at_the_new_revision() {
        let event = Event::new(9, Before::Object(labelled("a", 1)), Some(labelled("b", 9)));
        let mut line = BytesMut::new();
        event.write_line(Change::Deleted, &mut line);
        assert!(line.len() <= event.line_len(Change::Deleted));
        let line: Value = serde_json::from_slice(&line).expect("JSON");
        assert_eq!(line["type"], "DELETED");
        assert_eq!(line["object"]["metadata"]["resourceVersion"], "9");
        assert_eq!(line["object"]["metadata"]["labels"]["app"], "a");
    }
}
