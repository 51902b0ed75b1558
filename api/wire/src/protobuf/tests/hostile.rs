//! Bytes from an attacker, or from a broken connection.

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn hostile_bytes_are_rejected() {
    let good = envelope("v1", "ConfigMap", &bytes(1, bytes(1, "a")));
    for cut in MAGIC.len() + 1..good.len() {
        // Wherever it is cut, it is an error or an object without what was cut off.
        let _ = decode(&good[..cut]);
    }
    for (body, error) in [
        (b"{}".to_vec(), ProtobufError::Magic),
        (envelope("v1", "Bogus", b""), ProtobufError::UnknownKind),
        (envelope("v1", "ConfigMap", &[0x0a, 0xff]), ProtobufError::Truncated),
        (envelope("v1", "ConfigMap", &[0x0b]), ProtobufError::IllegalWireType(3)),
        (envelope("v1", "ConfigMap", &number(1, 1)), ProtobufError::WrongWireType(0, "metadata")),
        (envelope("v1", "ConfigMap", &number(0, 1)), ProtobufError::IllegalTag(0, 0)),
        (envelope("v1", "ConfigMap", &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), ProtobufError::Truncated),
        (envelope("v1", "ConfigMap", &[0xff; 11]), ProtobufError::Overflow),
        (envelope("v1", "ConfigMap", &bytes(1, bytes(1, [0xff]))), ProtobufError::Utf8),
    ] {
        assert_eq!(decode(&body), Err(error), "{body:?}");
    }
}

/// The other way in: a schema in a schema, so many times.
fn nested_schemas(depth: usize) -> Vec<u8> {
    let mut schema = bytes(5, "object");
    for _ in 0..depth {
        schema = bytes(28, schema);
    }
    bytes(2, bytes(7, bytes(4, bytes(1, schema))))
}

#[test]
fn nesting_ends_before_what_reads_json_does() {
    let kind = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let deepest = (1..200).take_while(|depth| decode(&envelope(kind.0, kind.1, &nested_schemas(*depth))).is_ok()).last().expect("some");
    let value = decoded(kind.0, kind.1, &nested_schemas(deepest));
    assert!(serde_json::from_str::<Value>(&value.to_string()).is_ok(), "{deepest}");
    assert_eq!(decode(&envelope(kind.0, kind.1, &nested_schemas(deepest + 1))), Err(ProtobufError::Deep));
    assert_eq!(decode(&envelope(kind.0, kind.1, &nested_schemas(2_000))), Err(ProtobufError::Deep));
}

#[test]
fn raw_json_does_not_nest_deeper_by_standing_deep() {
    for depth in [90, 110, 126] {
        let raw = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let revision = bytes(2, bytes(1, raw));
        match decode(&envelope("apps/v1", "ControllerRevision", &revision)) {
            Ok(decoded) => assert!(serde_json::from_str::<Value>(&decoded.value.to_string()).is_ok(), "{depth}"),
            Err(error) => assert_eq!(error, ProtobufError::Deep, "{depth}"),
        }
    }
    let broken = bytes(2, bytes(1, "{"));
    assert_eq!(decode(&envelope("apps/v1", "ControllerRevision", &broken)), Err(ProtobufError::Json));
}

#[test]
fn times_that_are_none_are_rejected() {
    for time in [[number(1, 0), bytes(2, "")].concat(), vec![0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]] {
        let lease = bytes(2, bytes(3, &time));
        let found = decode(&envelope("coordination.k8s.io/v1", "Lease", &lease));
        assert!(matches!(found, Err(ProtobufError::Time) | Ok(_)), "{found:?}");
    }
    let far = bytes(2, bytes(3, [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]));
    assert_eq!(decode(&envelope("coordination.k8s.io/v1", "Lease", &far)), Err(ProtobufError::Time));
    let never = bytes(2, bytes(3, [0x08, 0xff, 0x82, 0xd1, 0xff, 0xaf, 0x07]));
    let lease = decode(&envelope("coordination.k8s.io/v1", "Lease", &never)).expect("a time");
    assert_eq!(lease.value["spec"]["acquireTime"], "9999-12-30T22:00:00.000000Z");
}

#[test]
fn what_does_not_fit_its_field_is_not_written() {
    for (object, why) in [
        (json!({"spec": {"containers": "none"}}), "a string is no list"),
        (json!({"spec": {"priority": "high"}}), "a string is no number"),
        (json!({"metadata": {"labels": [1]}}), "a list is no map"),
        (json!({"metadata": {"creationTimestamp": "yesterday"}}), "a word is no time"),
        (json!({"spec": {"hostNetwork": 1}}), "a number is no truth"),
    ] {
        let form = Form::of("v1", "Pod").expect("a form");
        assert!(matches!(form.encode(object.to_string().as_bytes()), Err(EncodeError::Fields { .. })), "{why}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_an_object_or_an_error(raw in proptest::collection::vec(any::<u8>(), 0..200), kind in 0_usize..4) {
        let (api_version, kind) = [
            ("v1", "Pod"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            ("authorization.k8s.io/v1", "SubjectAccessReview"),
            ("v1", "DeleteOptions"),
        ][kind];
        // What is read can be written and read again, and is the same then.
        if let Ok(decoded) = decode(&envelope(api_version, kind, &raw)) {
            let form = Form::of(api_version, kind).expect("a form");
            let again = decode(&form.encode(decoded.value.to_string().as_bytes()).expect("encodes")).expect("decodes");
            let once_more = decode(&form.encode(again.value.to_string().as_bytes()).expect("encodes")).expect("decodes");
            prop_assert_eq!(again, once_more);
        }
    }

    #[test]
    fn a_byte_that_fell_over_does_no_harm(at in any::<proptest::sample::Index>(), byte: u8) {
        let object = json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"nodeName": "n", "containers": [
            {"name": "c", "image": "i", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1"}},
             "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 5}}], "volumes": [{"name": "v", "emptyDir": {}}]}});
        let mut encoded = Form::of("v1", "Pod").expect("a form").encode(object.to_string().as_bytes()).expect("encodes");
        let at = at.index(encoded.len());
        encoded[at] = byte;
        let _ = decode(&encoded);
    }
}
