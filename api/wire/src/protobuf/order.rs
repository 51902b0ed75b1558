//! JSON with its fields in the order of upstream's Go types, which is the order of the messages in the table: objects that the
//! server itself makes have the order that clients and people know (`kind`, `apiVersion`, `metadata`, …). Fields without a type
//! there are in alphabetic order, as Go writes maps.

use serde_json::{Map, Value};

use super::special::Special;
use super::table::{self, Field, Kind, Message, Shape};

/// Types without a message.
const TABLE: &Own = &[
    ("metadata", Fields::Named("apimachinery.pkg.apis.meta.v1.ListMeta")),
    (
        "columnDefinitions",
        Fields::Own(&[
            ("name", Fields::None),
            ("type", Fields::None),
            ("format", Fields::None),
            ("description", Fields::None),
            ("priority", Fields::None),
        ]),
    ),
    ("rows", Fields::Own(&[("cells", Fields::None), ("conditions", Fields::Own(CONDITION)), ("object", Fields::Itself)])),
];
const CONDITION: &Own = &[("type", Fields::None), ("status", Fields::None), ("reason", Fields::None), ("message", Fields::None)];

/// Fields in their order, each with the fields of its value.
type Own = [(&'static str, Fields)];

/// The fields of a value, or of the elements of a list.
#[derive(Clone, Copy)]
enum Fields {
    /// Any: they are in alphabetic order.
    None,
    /// The fields of the kind that the value names.
    Itself,
    Own(&'static Own),
    Named(&'static str),
    Message(&'static Message),
    /// Of each value of a map whose keys are anything.
    Map(&'static Message),
}

/// An object of a kind, as Go's encoder writes it, with the line feed behind it.
pub fn line(value: &Value) -> Vec<u8> {
    let mut out = text(value);
    out.push(b'\n');
    out
}

/// An object of a kind.
pub fn text(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    write(value, Fields::Itself, &mut out);
    out
}

/// The metadata of a list.
pub fn list_metadata(metadata: &Value) -> String {
    let mut out = Vec::new();
    write(metadata, Fields::Named("apimachinery.pkg.apis.meta.v1.ListMeta"), &mut out);
    String::from_utf8(out).unwrap_or_default()
}

fn write(value: &Value, fields: Fields, out: &mut Vec<u8>) {
    match (value, fields) {
        (_, Fields::None) => plain(value, out),
        (Value::Array(list), Fields::Message(message)) if message.list().is_some() => {
            let inner = message.list().map_or(Fields::None, below);
            each(list, inner, out);
        }
        (Value::Array(list), fields) => each(list, fields, out),
        (Value::Object(map), Fields::Map(message)) => {
            object(map.iter().map(|(name, value)| (name, value, Fields::Message(message))), out);
        }
        (Value::Object(map), Fields::Itself) => write_fields(map, of_kind(map), out),
        (Value::Object(map), Fields::Named(id)) => write_fields(map, table::message(id).map_or(Fields::None, Fields::Message), out),
        (Value::Object(map), fields) => write_fields(map, fields, out),
        _ => plain(value, out),
    }
}

fn of_kind(map: &Map<String, Value>) -> Fields {
    let text = |field: &str| map.get(field).and_then(Value::as_str).unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        // The oldest discovery documents have no version.
        ("", kind) => table::root("v1", kind).map_or(Fields::None, Fields::Message),
        (api_version, "Table") if api_version.starts_with("meta.k8s.io/") => Fields::Own(TABLE),
        (api_version, kind) => table::root(api_version, kind).map_or(Fields::None, Fields::Message),
    }
}

fn each(list: &[Value], fields: Fields, out: &mut Vec<u8>) {
    out.push(b'[');
    for (at, value) in list.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(value, fields, out);
    }
    out.push(b']');
}

fn write_fields(map: &Map<String, Value>, fields: Fields, out: &mut Vec<u8>) {
    if let Fields::None = fields {
        return object(map.iter().map(|(name, value)| (name, value, Fields::None)), out);
    }
    let mut ranked: Vec<_> = map
        .iter()
        .map(|(name, value)| {
            let (rank, inner) = rank_and_fields(fields, name);
            (rank, name, value, inner)
        })
        .collect();
    // Stable: unknown fields stay in alphabetic order after the others.
    ranked.sort_by_key(|(rank, ..)| *rank);
    object(ranked.into_iter().map(|(_, name, value, inner)| (name, value, inner)), out);
}

/// The position of a field, and the fields of its value.
fn rank_and_fields(fields: Fields, name: &str) -> (usize, Fields) {
    const TYPE_META: [&str; 2] = ["kind", "apiVersion"];
    let found = match fields {
        Fields::Own(own) => own.iter().enumerate().find(|(_, (field, _))| *field == name).map(|(at, (_, inner))| (at, *inner)),
        Fields::Message(message) => {
            message.flat().iter().enumerate().find(|(_, field)| field.name == name).map(|(at, field)| (at, below(field)))
        }
        Fields::None | Fields::Itself | Fields::Named(_) | Fields::Map(_) => None,
    };
    match (found, TYPE_META.iter().position(|field| *field == name)) {
        (Some((at, inner)), _) => (TYPE_META.len() + at, inner),
        (None, Some(at)) => (at, Fields::None),
        (None, None) => (usize::MAX, Fields::None),
    }
}

/// The fields of a field's value.
fn below(field: &Field) -> Fields {
    match (field.kind, field.shape) {
        (Kind::Message(message), Shape::Map) => Fields::Map(message),
        (Kind::Message(message), Shape::One | Shape::List) => Fields::Message(message),
        (Kind::Special(Special::Json), _) => Fields::Itself,
        _ => Fields::None,
    }
}

fn object<'v>(fields: impl Iterator<Item = (&'v String, &'v Value, Fields)>, out: &mut Vec<u8>) {
    out.push(b'{');
    for (at, (name, value, inner)) in fields.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        // Writing JSON to memory has no way to fail.
        let _ = serde_json::to_writer(&mut *out, name);
        out.push(b':');
        write(value, inner, out);
    }
    out.push(b'}');
}

fn plain(value: &Value, out: &mut Vec<u8>) {
    let _ = serde_json::to_writer(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ordered(value: &Value) -> String {
        let text = String::from_utf8(text(value)).expect("text");
        assert_eq!(&serde_json::from_str::<Value>(&text).expect("JSON"), value, "nothing is lost");
        text
    }

    #[test]
    fn fields_stand_as_upstreams_types_have_them() {
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "m", "reason": "NotFound",
            "details": {"name": "x", "group": "g", "kind": "pods", "causes": [{"field": "f", "message": "m", "reason": "r"}]}, "code": 404});
        let expected = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"m","reason":"NotFound","details":{"name":"x","group":"g","kind":"pods","causes":[{"reason":"r","message":"m","field":"f"}]},"code":404}"#;
        assert_eq!(ordered(&status), expected);
        let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [
            {"name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "verbs": ["get"], "shortNames": ["po"]}]});
        let expected = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get"],"shortNames":["po"]}]}"#;
        assert_eq!(ordered(&list), expected);
        let table = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "1"},
            "columnDefinitions": [{"name": "Name", "type": "string", "format": "name", "description": "d", "priority": 0}],
            "rows": [{"cells": ["x"], "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"uid": "u", "name": "x"}}}]});
        let expected = r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"columnDefinitions":[{"name":"Name","type":"string","format":"name","description":"d","priority":0}],"rows":[{"cells":["x"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"x","uid":"u"}}}]}"#;
        assert_eq!(ordered(&table), expected);
    }

    #[test]
    fn inlined_fields_maps_and_unknown_ones_are_ordered() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": {"b": "1", "a": "2"}, "annotations": {}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"memory": "1", "cpu": "2"}}, "image": "i"}],
                "volumes": [{"emptyDir": {}, "name": "v"}], "unheard": 1, "nodeName": "n"}, "status": {"podIP": "1", "phase": "Running"}});
        let expected = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","labels":{"a":"2","b":"1"},"annotations":{}},"spec":{"volumes":[{"name":"v","emptyDir":{}}],"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"2","memory":"1"}}}],"nodeName":"n","unheard":1},"status":{"phase":"Running","podIP":"1"}}"#;
        assert_eq!(ordered(&pod), expected);
        let free = json!({"kind": "Widget", "apiVersion": "example.com/v1", "z": 1, "a": {"kind": "x", "b": 1}});
        assert_eq!(ordered(&free), r#"{"a":{"b":1,"kind":"x"},"apiVersion":"example.com/v1","kind":"Widget","z":1}"#);
        assert_eq!(
            list_metadata(&json!({"continue": "c", "remainingItemCount": 1, "resourceVersion": "7"})),
            r#"{"resourceVersion":"7","continue":"c","remainingItemCount":1}"#
        );
    }
}
