//! Bodies: decoded, checked against schemas, defaulted and validated as before an object is stored.

use api_model::decode::{Decoded, decode};
use api_model::kind::{self, Kind};
use api_model::meta;
use api_rules::FieldValidation;
use serde_json::Value;

use super::{is_readable, same};

/// A body in JSON.
pub fn json(input: &[u8]) {
    let Ok(decoded) = decode(input, false) else { return };
    is_readable(&decoded.value);
    checked(&decoded);
    // Only JSON objects and arrays: a bare number would be a number of YAML, which has at most 64 bits. Input that the
    // decoder had to repair is not valid YAML.
    if !matches!(input.trim_ascii_start().first(), Some(b'{' | b'[')) || serde_json::from_slice::<Value>(input).is_err() {
        return;
    }
    let in_yaml = decode(input, true).unwrap_or_else(|error| panic!("JSON is YAML too: {error}"));
    let mut in_json = decoded.value;
    api_model::numbers::settle_numbers(&mut in_json);
    assert!(same(&in_yaml.value, &in_json), "{} {in_json}", in_yaml.value);
}

/// A body in YAML.
pub fn yaml(input: &[u8]) {
    let Ok(decoded) = decode(input, true) else { return };
    is_readable(&decoded.value);
    checked(&decoded);
}

/// A body in protobuf.
pub fn protobuf(input: &[u8]) {
    let Ok(decoded) = api_wire::protobuf::decode(input) else { return };
    let value = decoded.value;
    is_readable(&value);
    checked(&Decoded { value, duplicates: Vec::new() });
}

/// The kind that a body names; Pod if it names no served kind.
pub fn kind_of(value: &Value) -> &'static Kind {
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
    kind::find_by_kind(text("apiVersion"), text("kind")).unwrap_or_else(|| kind::find("", "pods").expect("served"))
}

fn checked(decoded: &Decoded) {
    let kind = kind_of(&decoded.value);
    let fields = |mode| {
        let mut object = decoded.value.clone();
        api_rules::check_fields(kind, &mut object, &decoded.duplicates, mode).map(|warnings| (object, warnings))
    };
    let ignored = fields(FieldValidation::Ignore);
    if let Ok((strict, warnings)) = fields(FieldValidation::Strict) {
        assert!(warnings.is_empty() && decoded.duplicates.is_empty());
        assert_eq!(ignored.as_ref().map(|(object, _)| object), Ok(&strict), "what is strictly right is right");
    }
    let Ok((mut object, _)) = ignored else { return };
    if !object.is_object() {
        return;
    }
    api_rules::default(kind, &mut object);
    let mut again = object.clone();
    api_rules::default(kind, &mut again);
    assert_eq!(again, object, "defaulting is idempotent");
    api_rules::prepare_create(kind, &mut object);
    if !api_rules::validate_create(kind, &object).is_empty() {
        return;
    }
    is_readable(&object);
    api_rules::warnings(kind, &object);
    meta::set(&mut object, "resourceVersion", "1");
    let mut unchanged = object.clone();
    api_rules::prepare_update(kind, None, &mut unchanged, &object);
    let errors = api_rules::validate_update(kind, None, &unchanged, &object, &mut Vec::new());
    assert!(errors.is_empty(), "what may be created may stay as it is: {errors:?} {object}");
}
