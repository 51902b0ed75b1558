//! Reads and writes `metadata` of objects that are JSON values, and generates random names for `generateName` and for
//! controllers.

use api_clock::rand::Rng;
use jiff::Timestamp;
use serde_json::{Map, Value};

/// Upstream's alphabet for generated names: no vowels, and no characters that look alike.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Upstream's `maxGeneratedNameLength`: 63 minus the five random characters.
const GENERATED_BASE_LEN_MAX: usize = 58;

/// `metadata.FIELD` as a string; empty when absent.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|m| m.get(field)).and_then(Value::as_str).unwrap_or_default()
}

/// `metadata.name`; empty when absent.
pub fn name(object: &Value) -> &str {
    text(object, "name")
}

/// `metadata.namespace`; empty when absent.
pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

/// `metadata.uid`; empty when absent.
pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// `metadata.resourceVersion`; empty when absent.
pub fn resource_version(object: &Value) -> &str {
    text(object, "resourceVersion")
}

/// Whether `metadata.deletionTimestamp` is set.
pub fn is_deleting(object: &Value) -> bool {
    object.get("metadata").and_then(|m| m.get("deletionTimestamp")).is_some_and(|t| !t.is_null())
}

/// The finalizers.
pub fn finalizers(object: &Value) -> Vec<&str> {
    object
        .get("metadata")
        .and_then(|m| m.get("finalizers"))
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

/// The metadata map, created if absent; `None` if the object is no map.
pub fn metadata_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let metadata = object.as_object_mut()?.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut()
}

/// Sets `metadata.FIELD`.
pub fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(metadata) = metadata_mut(object) {
        metadata.insert(field.to_owned(), value.into());
    }
}

/// Removes `metadata.FIELD`.
pub fn unset(object: &mut Value, field: &str) {
    if let Some(metadata) = metadata_mut(object) {
        metadata.remove(field);
    }
}

/// The labels as pairs in key order.
pub fn labels(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata")?.get("labels")?.as_object()
}

/// The annotation with the given key.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

/// An RFC 3339 time in whole seconds and UTC, the format of `metav1.Time`.
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// An RFC 3339 time with microseconds, the format of `metav1.MicroTime`.
pub fn micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// `len` random characters of upstream's safe alphabet.
pub fn random_suffix(len: usize) -> String {
    let mut rng = api_clock::rng();
    (0..len).filter_map(|_| ALPHABET.get(rng.random_range(0..ALPHABET.len()))).map(|&b| char::from(b)).collect()
}

/// A name for `generateName`: the base, cut if it is too long, and five random characters.
pub fn generated_name(base: &str) -> String {
    let cut = base.char_indices().take_while(|(at, _)| *at < GENERATED_BASE_LEN_MAX).map(|(at, c)| at + c.len_utf8()).last().unwrap_or(0);
    format!("{}{}", base.get(..cut).unwrap_or(base), random_suffix(5))
}

/// A random version 4 UUID.
pub fn new_uid() -> String {
    uuid::Builder::from_random_bytes(api_clock::rng().random()).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_version_four() {
        let uid = new_uid();
        assert_eq!(uid.len(), 36);
        assert_eq!(uid.as_bytes().get(14), Some(&b'4'));
        assert!(matches!(uid.as_bytes().get(19), Some(b'8' | b'9' | b'a' | b'b')));
    }

    #[test]
    fn generated_names_fit_a_label() {
        let name = generated_name(&"x".repeat(80));
        assert_eq!(name.len(), 63);
    }

    #[test]
    fn times_have_whole_seconds() {
        let at = Timestamp::from_second(1_700_000_000).expect("in range");
        assert_eq!(time(at), "2023-11-14T22:13:20Z");
        assert_eq!(micro_time(at), "2023-11-14T22:13:20.000000Z");
    }
}
