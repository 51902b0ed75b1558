//! One object as all readers get it: the bytes in the store, and its parsed value, which is made on request and shared by all
//! who use it.
//!
//! The store has an object as JSON that begins with `kind`, `apiVersion` and `metadata`, without the resource version, which is
//! known only after the write. It is inserted after `"metadata":{` wherever the object is written out, so that the cache, its
//! history and the store's tail share the same bytes: a parsed object takes five times the memory.

mod scan;
mod stored_form;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

use api_model::selector::Selector;
use bytes::{BufMut, Bytes, BytesMut};
use memchr::memmem;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

use super::recent::Recent;
pub use stored_form::encode;

/// The bytes before the fields of an object's metadata.
const METADATA: &[u8] = b",\"metadata\":{";
/// The same where metadata comes first.
const ITEM: &[u8] = b"{\"metadata\":{";
/// `kind` and `apiVersion` of an object that we wrote end before this.
const PREFIX_LEN_MAX: usize = 1_024;
const VERSION: &[u8] = b"\"resourceVersion\":\"";
/// Digits of the largest revision.
const DIGITS_MAX: usize = 20;

/// An object at one revision.
#[derive(Debug)]
pub struct Object {
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// Name of the object.
    pub name: Arc<str>,
    /// The revision of the write that made it: its resource version.
    pub revision: u64,
    /// The revision at which its bytes were written: an earlier one for the last state of a deleted object.
    pub written: u64,
    stored: Bytes,
    /// The position of the resource version in `stored`.
    at: usize,
    /// The size of the JSON that clients get. Known without reading the bytes, which are rarely in the CPU's cache.
    len: usize,
    value: Mutex<Weak<Value>>,
    recent: Arc<Recent>,
    /// Whether it is to be written again though nothing changed: another key is in use now.
    stale: bool,
    node: OnceLock<Option<Arc<str>>>,
    /// Parsed when a selector first needs them.
    labels: OnceLock<Labels>,
}

impl Object {
    /// From the bytes in the store. `value` is the value that they were made from, if the caller has it and it will be needed
    /// again soon.
    pub fn new(
        (namespace, name): (Arc<str>, Arc<str>),
        revision: u64,
        stored: Bytes,
        value: Option<Value>,
        recent: &Arc<Recent>,
    ) -> Result<Self, serde_json::Error> {
        let (stored, at) = match metadata_at(&stored) {
            Some(at) => (stored, at),
            None => {
                // Another program than `encode` wrote the bytes: convert them to our form.
                let stored = encode(&serde_json::from_slice(&stored)?);
                let at = metadata_at(&stored).unwrap_or_default();
                (stored, at)
            }
        };
        let len = stored.len() + version_len(stored.get(at..).unwrap_or_default(), revision);
        let (slot, recent) = (Mutex::default(), Arc::clone(recent));
        let (node, labels) = (OnceLock::new(), OnceLock::new());
        let object =
            Self { namespace, name, revision, written: revision, stored, at, len, value: slot, recent, stale: false, node, labels };
        if let Some(mut value) = value {
            api_model::meta::set(&mut value, "resourceVersion", revision.to_string());
            let value = Arc::new(value);
            *object.value.lock() = Arc::downgrade(&value);
            object.recent.keep(&value, object.stored.len());
        }
        Ok(object)
    }

    /// The same, to be written again at the next opportunity.
    pub fn stale(self) -> Self {
        Self { stale: true, ..self }
    }

    /// The same object with a later revision: the object of a DELETED event.
    pub fn at_revision(&self, revision: u64) -> Self {
        Self {
            namespace: Arc::clone(&self.namespace),
            name: Arc::clone(&self.name),
            revision,
            written: self.written,
            stored: self.stored.clone(),
            at: self.at,
            len: self.stored.len() + version_len(self.tail(), revision),
            value: Mutex::default(),
            recent: Arc::clone(&self.recent),
            stale: self.stale,
            node: self.node.clone(),
            labels: OnceLock::new(),
        }
    }

    /// A webhook's version of the object, at the same revision.
    pub fn converted(&self, value: Value) -> Result<Self, serde_json::Error> {
        let name = (Arc::clone(&self.namespace), Arc::clone(&self.name));
        Self::new(name, self.revision, encode(&value), Some(value), &self.recent)
    }

    /// The bytes before its metadata: kind and version.
    pub fn type_meta(&self) -> &[u8] {
        self.stored.get(..self.at).unwrap_or_default()
    }

    /// `spec.nodeName`, if set.
    pub fn node(&self) -> Option<&Arc<str>> {
        let read = || {
            let at_hand = self.value.lock().upgrade();
            let node = match &at_hand {
                Some(value) => value.get("spec")?.get("nodeName")?.as_str()?.to_owned(),
                None => self.read_node()?,
            };
            (!node.is_empty()).then(|| Arc::from(node))
        };
        self.node.get_or_init(read).as_ref()
    }

    /// Finds the field in the stored form, which is parsed only when the field is not where that form has it.
    fn read_node(&self) -> Option<String> {
        let tail = self.tail();
        memmem::find(tail, b"\"nodeName\"")?;
        match scan::text_of_spec(tail, b"nodeName") {
            Some(node) => Some(node.to_owned()),
            None => self.value().get("spec")?.get("nodeName")?.as_str().map(str::to_owned),
        }
    }

    /// Whether these are the bytes that this object is stored as: nothing has changed.
    pub fn is_stored_as(&self, stored: &[u8]) -> bool {
        !self.stale && self.stored == stored
    }

    /// The size of its JSON.
    pub fn json_len(&self) -> usize {
        self.len
    }

    /// The JSON of an answer: with a line feed at the end, as Go's encoder writes it.
    pub fn line(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.json_len() + 1);
        self.write(&mut out);
        out.put_u8(b'\n');
        out.freeze()
    }

    /// Writes the JSON that clients get.
    pub fn write(&self, out: &mut BytesMut) {
        out.put_slice(self.type_meta());
        self.write_after_metadata(out, self.tail());
    }

    /// The size of [`Object::write_item`].
    pub fn item_len(&self) -> usize {
        self.len - self.at + ITEM.len()
    }

    /// Writes the JSON without kind and version.
    pub fn write_item(&self, out: &mut BytesMut) {
        out.put_slice(ITEM);
        self.write_after_metadata(out, self.tail());
    }

    /// The size of [`Object::write_metadata`].
    pub fn metadata_len(&self) -> usize {
        let rest = self.metadata();
        1 + rest.len() + version_len(rest, self.revision)
    }

    /// Writes the JSON of its metadata alone.
    pub fn write_metadata(&self, out: &mut BytesMut) {
        out.put_slice(b"{");
        self.write_after_metadata(out, self.metadata());
    }

    /// Writes the resource version and, after it, bytes that begin within the metadata.
    fn write_after_metadata(&self, out: &mut BytesMut, rest: &[u8]) {
        let mut digits = [0; DIGITS_MAX];
        out.put_slice(VERSION);
        out.put_slice(decimal(self.revision, &mut digits));
        out.put_slice(if rest.first() == Some(&b'}') { b"\"" } else { b"\"," });
        out.put_slice(rest);
    }

    fn tail(&self) -> &[u8] {
        self.stored.get(self.at..).unwrap_or_default()
    }

    /// The stored bytes from its metadata on, without the opening brace.
    fn metadata(&self) -> &[u8] {
        let tail = self.tail();
        tail.get(..scan::closed_at(tail)).unwrap_or_default()
    }

    /// The parsed object with its resource version: an existing one, or a new one. Whoever drops it last frees it, ideally the
    /// thread that made it: memory that one thread allocates and another frees is expensive.
    pub fn value(&self) -> Arc<Value> {
        let mut slot = self.value.lock();
        if let Some(value) = slot.upgrade() {
            return value;
        }
        // The bytes are ours; a value that does not parse could only be a broken disk's.
        let mut value: Value = serde_json::from_slice(&self.stored).unwrap_or_default();
        api_model::meta::set(&mut value, "resourceVersion", self.revision.to_string());
        let value = Arc::new(value);
        *slot = Arc::downgrade(&value);
        value
    }

    /// The same, and stays in memory for a while: for objects that are read again and again.
    pub fn shared_value(&self) -> Arc<Value> {
        let at_hand = self.value.lock().upgrade();
        at_hand.unwrap_or_else(|| {
            let value = self.value();
            self.recent.keep(&value, self.stored.len());
            value
        })
    }

    /// Whether a selector finds its labels.
    pub fn is_selected_by(&self, labels: &Selector) -> bool {
        let own = self.own_labels();
        labels.matches_by(&|key| own.iter().find(|(found, _)| **found == *key).map(|(_, value)| &**value))
    }

    /// The object's labels.
    pub fn labels(&self) -> BTreeMap<String, String> {
        self.own_labels().iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    fn own_labels(&self) -> &Labels {
        self.labels.get_or_init(|| self.read_labels())
    }

    /// Parses no more than the metadata, where its form allows that.
    fn read_labels(&self) -> Labels {
        let metadata = [b"{", self.metadata()].concat();
        let found = match serde_json::from_slice::<Labelled>(&metadata) {
            Ok(Labelled { labels }) => labels.unwrap_or_default(),
            Err(_) => {
                let value = self.value();
                let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
                api_model::meta::labels(&value).into_iter().flatten().filter_map(text).collect()
            }
        };
        found.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
    }
}

type Labels = Box<[(Box<str>, Box<str>)]>;

/// The part of metadata that label selectors need.
#[derive(Deserialize)]
struct Labelled {
    labels: Option<BTreeMap<String, String>>,
}

fn metadata_at(stored: &[u8]) -> Option<usize> {
    if !stored.starts_with(b"{\"kind\":") {
        return None;
    }
    let head = stored.get(..stored.len().min(PREFIX_LEN_MAX))?;
    head.windows(METADATA.len()).position(|window| window == METADATA).map(|at| at + METADATA.len())
}

/// How much the resource version's field adds before these bytes.
fn version_len(rest: &[u8], revision: u64) -> usize {
    VERSION.len() + decimal_len(revision) + if rest.first() == Some(&b'}') { 1 } else { 2 }
}

/// A number's digits, without the memory and the machinery of a text.
fn decimal(mut number: u64, digits: &mut [u8; DIGITS_MAX]) -> &[u8] {
    let mut first = DIGITS_MAX;
    for (at, digit) in digits.iter_mut().enumerate().rev() {
        // A digit fits a byte.
        *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
        first = at;
        if number == 0 {
            break;
        }
    }
    digits.get(first..).unwrap_or_default()
}

fn decimal_len(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: &Value, revision: u64) -> Object {
        Object::new(("ns".into(), "x".into()), revision, encode(value), None, &Arc::default()).expect("JSON")
    }

    fn written(object: &Object) -> Value {
        let bytes = object.line();
        assert_eq!((bytes.len(), bytes.last()), (object.json_len() + 1, Some(&b'\n')));
        serde_json::from_slice(&bytes).expect("JSON")
    }

    #[test]
    fn the_bytes_say_what_the_value_says() {
        let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "resourceVersion": "7"}, "data": {"a": "\"metadata\":{"}});
        let object = object(&value, 42);
        let mut expected = value;
        expected["metadata"]["resourceVersion"] = "42".into();
        assert_eq!(written(&object), expected);
        assert_eq!(*object.value(), expected);
    }

    #[test]
    fn a_later_revision_replaces_the_number_whatever_its_length() {
        for (from, to) in [(0, 1), (9, 10), (99, 1_000_000)] {
            for metadata in [json!({"name": "x"}), json!({})] {
                let first = object(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}), from);
                let later = first.at_revision(to);
                assert_eq!(written(&later)["metadata"]["resourceVersion"], to.to_string(), "{:?}", later.line());
                assert_eq!(*later.value(), written(&later));
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
        let object = Object::new(("ns".into(), "x".into()), 5, Bytes::from_static(stored), None, &Arc::default()).expect("JSON");
        assert_eq!(
            object.line(),
            Bytes::from_static(b"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\",\"name\":\"x\"}}\n")
        );
    }

    #[test]
    fn metadata_ends_where_its_brace_is_closed() {
        let labels = json!({"a": "}{\\\"", "b": "\\"});
        for metadata in [json!({}), json!({"labels": labels, "ownerReferences": [{"uid": "u"}], "z": {"z": {}}})] {
            let object = object(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "}"}}), 7);
            let mut out = BytesMut::new();
            object.write_metadata(&mut out);
            assert_eq!(serde_json::from_slice::<Value>(&out).expect("JSON"), object.value()["metadata"]);
            assert_eq!(out.len(), object.metadata_len());
        }
    }

    #[test]
    fn an_item_lacks_kind_and_version() {
        for metadata in [json!({}), json!({"name": "x"})] {
            let object = object(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "}"}}), 7);
            let mut out = BytesMut::new();
            object.write_item(&mut out);
            let (item, whole) = (serde_json::from_slice::<Value>(&out).expect("JSON"), object.value());
            assert_eq!(item, json!({"metadata": whole["metadata"], "data": whole["data"]}));
            assert_eq!(out.len(), object.item_len());
        }
    }

    #[test]
    fn labels_are_read_with_and_without_a_value_at_hand() {
        let selector = Selector::parse("app=a,tier!=b").expect("parses");
        for (labels, expected) in [(json!({"app": "a"}), true), (json!({"app": "a", "tier": "b"}), false), (Value::Null, false)] {
            let object = object(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": labels, "name": "x"}}), 7);
            assert_eq!(object.is_selected_by(&selector), expected, "{labels}");
            assert_eq!(json!(object.labels()), if labels.is_null() { json!({}) } else { labels.clone() });
            let _at_hand = object.value();
            assert_eq!(object.is_selected_by(&selector), expected, "{labels}");
        }
    }

    #[test]
    fn the_node_is_read_with_and_without_a_value_at_hand() {
        for (spec, expected) in [(json!({"nodeName": "n", "x": [{}]}), Some("n")), (json!({"nodeName": ""}), None), (Value::Null, None)] {
            for at_hand in [false, true] {
                let pod = object(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}), 7);
                let _value = at_hand.then(|| pod.value());
                assert_eq!(pod.node().map(|node| &**node), expected, "{spec}");
            }
        }
    }

    #[test]
    fn digits_are_those_of_the_number() {
        for number in [0, 7, 10, 99, 100, 1_234_567_890, u64::MAX] {
            let digits = decimal(number, &mut [0; DIGITS_MAX]).to_vec();
            assert_eq!((digits.len(), String::from_utf8(digits).expect("text")), (decimal_len(number), number.to_string()));
        }
    }
}
