//! A hash for names: it depends on the content of a value only, not on the order of its keys.

use std::collections::BTreeMap;

use serde_json::Value;

/// Upstream's alphabet of safe names.
const SAFE: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// FNV-1a over the JSON with sorted keys and the number of collisions, in upstream's safe letters.
pub fn of(value: &Value, collisions: Option<i32>) -> String {
    let mut hash = Fnv(0x811c_9dc5);
    feed(&mut hash, value);
    if let Some(collisions) = collisions {
        hash.write(&collisions.to_le_bytes());
    }
    safe_encode(&hash.0.to_string())
}

/// Upstream's `SafeEncodeString`: no vowels, so no words.
fn safe_encode(text: &str) -> String {
    text.bytes().filter_map(|byte| SAFE.get(usize::from(byte) % SAFE.len())).map(|&byte| char::from(byte)).collect()
}

struct Fnv(u32);

impl Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }
}

fn feed(hash: &mut Fnv, value: &Value) {
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<_, _> = map.iter().collect();
            hash.write(b"{");
            for (key, value) in sorted {
                hash.write(key.as_bytes());
                hash.write(b"\0");
                feed(hash, value);
            }
            hash.write(b"}");
        }
        Value::Array(items) => {
            hash.write(b"[");
            for item in items {
                feed(hash, item);
                hash.write(b",");
            }
            hash.write(b"]");
        }
        other => hash.write(other.to_string().as_bytes()),
    }
}
