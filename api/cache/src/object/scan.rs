//! Finds parts of the stored form without parsing it: JSON without spaces, with the fields of a kind in the order of their names.

use memchr::memmem;

/// The start of the field `spec` of an object. Within metadata, nothing of that name is an object, and texts have no bare quotes.
const SPEC: &[u8] = b",\"spec\":{";

/// The text of a field of `spec`. `None` also for a text with escapes.
pub(super) fn text_of_spec<'b>(object: &'b [u8], name: &[u8]) -> Option<&'b str> {
    let spec = object.get(memmem::find(object, SPEC)? + SPEC.len()..)?;
    let text = field(spec, name)?.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    std::str::from_utf8(text).ok().filter(|text| !text.contains('\\'))
}

/// The value of a field of the object in which these bytes begin.
fn field<'b>(mut rest: &'b [u8], name: &[u8]) -> Option<&'b [u8]> {
    loop {
        let key = rest.strip_prefix(b"\"")?;
        let (key, value) = key.split_at_checked(text_end(key)?)?;
        let value = value.strip_prefix(b"\":")?;
        let (value, next) = value.split_at_checked(value_end(value)?)?;
        if key == name {
            return Some(value);
        }
        rest = next.strip_prefix(b",")?;
    }
}

/// The length of the value with which these bytes begin.
fn value_end(bytes: &[u8]) -> Option<usize> {
    match bytes.split_first()? {
        (b'"', text) => Some(text_end(text)? + 2),
        (b'{' | b'[', inside) => Some(closed_at(inside) + 1),
        _ => bytes.iter().position(|byte| matches!(byte, b',' | b'}' | b']')),
    }
}

/// The position of the quote that ends the text in which these bytes begin.
fn text_end(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes.get(at) == Some(&b'"') {
            return Some(at);
        }
        at += 2;
    }
}

/// The position after the object or list in which these bytes begin, closing bracket included.
pub(super) fn closed_at(bytes: &[u8]) -> usize {
    let (mut depth, mut at) = (1_usize, 0);
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => match bytes.get(at..).and_then(text_end) {
                Some(end) => at += end + 1,
                None => break,
            },
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 1 => return at,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn text(spec: &Value) -> Option<String> {
        let object = json!({"apiVersion": "v1", "metadata": {"labels": {"spec": "{"}, "z": {"nodeName": "m"}}, "spec": spec, "status": {"nodeName": "s"}});
        text_of_spec(object.to_string().as_bytes(), b"nodeName").map(str::to_owned)
    }

    #[test]
    fn a_text_is_that_of_the_field_and_of_no_other() {
        for (spec, wanted) in [
            (json!({"nodeName": "n"}), Some("n")),
            (json!({"a": [1, true, null, "]}"], "b": {"nodeName": "other"}, "nodeName": "n", "z": 1}), Some("n")),
            (json!({"a": "\\", "b": "\"nodeName\":\"other\"", "nodeName": "n"}), Some("n")),
            (json!({"nodeName": "a\"b"}), None),
            (json!({"nodeName": 1}), None),
            (json!({"nodeSelector": {"nodeName": "other"}}), None),
            (json!({}), None),
        ] {
            assert_eq!(text(&spec).as_deref(), wanted, "{spec}");
        }
        assert_eq!(text_of_spec(b"\"nodeName\":\"n\"", b"nodeName"), None);
    }

    #[test]
    fn broken_bytes_end_the_search() {
        let whole = json!({"metadata": {}, "spec": {"a": [{"b": "\\\""}], "nodeName": "n"}}).to_string();
        for len in 0..whole.len() - 3 {
            assert_eq!(text_of_spec(&whole.as_bytes()[..len], b"nodeName"), None, "{len}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".*".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".*", inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_other_fields_are_skipped(before in any_json(), after in any_json()) {
            prop_assert_eq!(text(&json!({"a": before, "nodeName": "n", "z": after})), Some("n".to_owned()));
        }
    }
}
