//! The form in which the store has an object.

use std::cell::RefCell;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::METADATA;

/// The size of a thread's buffer in which it writes objects.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

/// The stored form of an object: without resource version; `kind`, `apiVersion` and `metadata` first.
pub fn encode(value: &Value) -> Bytes {
    thread_local! {
        static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    // A value that lives long should not be larger than its content.
    SCRATCH.with_borrow_mut(|out| {
        out.clear();
        write_stored(out, value);
        let bytes = Bytes::copy_from_slice(out);
        if out.capacity() > SCRATCH_BYTES_MAX {
            *out = Vec::new();
        }
        bytes
    })
}

fn write_stored(out: &mut Vec<u8>, value: &Value) {
    let empty = Map::new();
    let object = value.as_object().unwrap_or(&empty);
    out.extend_from_slice(b"{\"kind\":");
    write_json(out, object.get("kind").unwrap_or(&Value::Null));
    out.extend_from_slice(b",\"apiVersion\":");
    write_json(out, object.get("apiVersion").unwrap_or(&Value::Null));
    out.extend_from_slice(METADATA);
    let metadata = object.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    write_fields(out, metadata.iter().filter(|(key, _)| *key != "resourceVersion"), false);
    out.push(b'}');
    write_fields(out, object.iter().filter(|(key, _)| !matches!(key.as_str(), "kind" | "apiVersion" | "metadata")), true);
    out.push(b'}');
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
