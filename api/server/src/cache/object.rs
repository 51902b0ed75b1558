//! One object as everybody gets to see it: its final bytes, made once, and its parsed value, made
//! when first asked for.
//!
//! The store holds an object as JSON that begins with `kind`, `apiVersion` and `metadata`, without
//! the resource version, which is known only after the write. Splicing it in behind `"metadata":{`
//! costs one copy and no parsing.

use std::sync::{Arc, OnceLock};

use bytes::{BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use serde_json::{Map, Value};

/// What stands before the fields of an object's metadata.
const METADATA: &[u8] = b",\"metadata\":{";
/// `kind` and `apiVersion` of an object that we wrote end before this.
const PREFIX_LEN_MAX: usize = 1_024;
const VERSION: &[u8] = b"\"resourceVersion\":\"";

/// An object at one revision.
#[derive(Debug)]
pub(crate) struct Object {
    /// Namespace; empty for cluster-scoped kinds.
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    /// The revision of the write that made it: its resource version.
    pub(crate) revision: u64,
    bytes: Bytes,
    /// Where the resource version's field starts in `bytes`.
    at: usize,
    value: Mutex<Option<Arc<Value>>>,
    /// Whether it is to be written again though nothing changed: another key is in use now.
    stale: bool,
    node: OnceLock<Option<Arc<str>>>,
}

impl Object {
    /// From the bytes that the store holds. `value` is what they were made from, where the maker
    /// still has it.
    pub(crate) fn new(
        namespace: Arc<str>,
        name: Arc<str>,
        revision: u64,
        stored: &[u8],
        value: Option<Value>,
    ) -> Result<Self, serde_json::Error> {
        let value = value.map(|mut value| {
            api_model::meta::set(&mut value, "resourceVersion", revision.to_string());
            Arc::new(value)
        });
        let (bytes, at) = match metadata_at(stored) {
            Some(at) => (splice(stored, at, at, revision), at),
            None => {
                // Written by something else than `encode`: bring it into our form.
                let stored = encode(&serde_json::from_slice(stored)?);
                let at = metadata_at(&stored).unwrap_or_default();
                (splice(&stored, at, at, revision), at)
            }
        };
        Ok(Self { namespace, name, revision, bytes, at, value: Mutex::new(value), stale: false, node: OnceLock::new() })
    }

    /// The same, to be written again at the next opportunity.
    pub(crate) fn stale(self) -> Self {
        Self { stale: true, ..self }
    }

    /// The same object with a later revision: what a DELETED event carries.
    pub(crate) fn at_revision(&self, revision: u64) -> Self {
        let bytes = splice(&self.bytes, self.at, self.version_end(), revision);
        let (namespace, name, node) = (Arc::clone(&self.namespace), Arc::clone(&self.name), self.node.clone());
        Self { namespace, name, revision, bytes, at: self.at, value: Mutex::new(None), stale: self.stale, node }
    }

    /// `spec.nodeName`, where set.
    pub(crate) fn node(&self) -> Option<&Arc<str>> {
        let read = || self.value().get("spec")?.get("nodeName")?.as_str().filter(|node| !node.is_empty()).map(Arc::from);
        self.node.get_or_init(read).as_ref()
    }

    /// Whether these are the bytes that this object is stored as: nothing has changed.
    pub(crate) fn is_stored_as(&self, stored: &[u8]) -> bool {
        if self.stale {
            return false;
        }
        let end = self.version_end();
        let (head, tail) = (self.bytes.get(..self.at).unwrap_or_default(), self.bytes.get(end..).unwrap_or_default());
        stored.len() == head.len() + tail.len() && stored.starts_with(head) && stored.ends_with(tail)
    }

    /// Where the resource version's field ends, its comma included.
    fn version_end(&self) -> usize {
        let end = self.at + VERSION.len() + decimal_len(self.revision) + 1;
        if self.bytes.get(end) == Some(&b',') { end + 1 } else { end }
    }

    /// The JSON that clients get.
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The parsed object, resource version included.
    pub(crate) fn value(&self) -> Arc<Value> {
        let mut value = self.value.lock();
        match &*value {
            Some(value) => Arc::clone(value),
            None => {
                // The bytes are ours; a value that does not parse could only be a broken disk's.
                let parsed = Arc::new(serde_json::from_slice(&self.bytes).unwrap_or_default());
                *value = Some(Arc::clone(&parsed));
                parsed
            }
        }
    }

    /// Drops the parsed value of an object that is only history now.
    pub(crate) fn forget_value(&self) {
        *self.value.lock() = None;
    }
}

/// The form in which an object is stored: without resource version, `kind`, `apiVersion` and
/// `metadata` first.
pub(crate) fn encode(value: &Value) -> Bytes {
    let empty = Map::new();
    let object = value.as_object().unwrap_or(&empty);
    let mut out = Vec::with_capacity(1_024);
    out.extend_from_slice(b"{\"kind\":");
    write_json(&mut out, object.get("kind").unwrap_or(&Value::Null));
    out.extend_from_slice(b",\"apiVersion\":");
    write_json(&mut out, object.get("apiVersion").unwrap_or(&Value::Null));
    out.extend_from_slice(METADATA);
    let metadata = object.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    write_fields(&mut out, metadata.iter().filter(|(key, _)| *key != "resourceVersion"), false);
    out.push(b'}');
    write_fields(&mut out, object.iter().filter(|(key, _)| !matches!(key.as_str(), "kind" | "apiVersion" | "metadata")), true);
    out.push(b'}');
    Bytes::from(out)
}

fn write_fields<'a>(out: &mut Vec<u8>, fields: impl Iterator<Item = (&'a String, &'a Value)>, mut comma: bool) {
    for (key, value) in fields {
        if comma {
            out.push(b',');
        }
        comma = true;
        write_text(out, key);
        out.push(b':');
        write_json(out, value);
    }
}

fn write_json(out: &mut Vec<u8>, value: &Value) {
    // Writing a JSON value to memory has no way to fail.
    let _ = serde_json::to_writer(out, value);
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    let _ = serde_json::to_writer(out, text);
}

fn metadata_at(stored: &[u8]) -> Option<usize> {
    if !stored.starts_with(b"{\"kind\":") {
        return None;
    }
    let head = stored.get(..stored.len().min(PREFIX_LEN_MAX))?;
    head.windows(METADATA.len()).position(|window| window == METADATA).map(|at| at + METADATA.len())
}

/// `bytes` with what stands from `start` to `end` replaced by the resource version's field.
fn splice(bytes: &[u8], start: usize, end: usize, revision: u64) -> Bytes {
    let (head, tail) = (bytes.get(..start).unwrap_or_default(), bytes.get(end..).unwrap_or_default());
    let mut out = BytesMut::with_capacity(head.len() + tail.len() + VERSION.len() + 24);
    out.put_slice(head);
    out.put_slice(VERSION);
    out.put_slice(revision.to_string().as_bytes());
    out.put_slice(if tail.first() == Some(&b'}') { b"\"" } else { b"\"," });
    out.put_slice(tail);
    out.freeze()
}

fn decimal_len(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: &Value, revision: u64) -> Object {
        Object::new("ns".into(), "x".into(), revision, &encode(value), None).expect("JSON")
    }

    #[test]
    fn the_bytes_say_what_the_value_says() {
        let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "resourceVersion": "7"}, "data": {"a": "\"metadata\":{"}});
        let object = object(&value, 42);
        let mut expected = value;
        expected["metadata"]["resourceVersion"] = "42".into();
        assert_eq!(serde_json::from_slice::<Value>(object.bytes()).expect("JSON"), expected);
        assert_eq!(*object.value(), expected);
    }

    #[test]
    fn a_later_revision_replaces_the_number_whatever_its_length() {
        for (from, to) in [(0, 1), (9, 10), (99, 1_000_000)] {
            for metadata in [json!({"name": "x"}), json!({})] {
                let first = object(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}), from);
                let later = first.at_revision(to);
                assert_eq!(later.value()["metadata"]["resourceVersion"], to.to_string(), "{:?}", later.bytes());
                assert_eq!(later.value()["metadata"]["name"], first.value()["metadata"]["name"]);
            }
        }
    }

    #[test]
    fn knows_its_own_stored_form() {
        let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "b"}});
        let object = object(&value, 12);
        assert!(object.is_stored_as(&encode(&object.value())));
        assert!(
            !object.is_stored_as(&encode(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "c"}})))
        );
    }

    #[test]
    fn foreign_bytes_are_brought_into_form() {
        let stored = br#"{"metadata":{"resourceVersion":"3","name":"x"},"kind":"ConfigMap","apiVersion":"v1"}"#;
        let object = Object::new("ns".into(), "x".into(), 5, stored, None).expect("JSON");
        assert_eq!(
            object.bytes(),
            &Bytes::from_static(br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"5","name":"x"}}"#)
        );
    }
}
