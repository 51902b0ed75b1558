//! Nothing is lost: an object that has every field that its kind's schema has is the same when it was
//! sent and read again, and so is any part of it.

use api_model::kind::builtin;
use api_schema::{Format, Schema, Shape};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Map, json};

use super::super::table::{self, Message};
use super::*;

/// Makes values of schemas, no two scalars alike.
struct Maker {
    count: i64,
    /// Whether an optional field is generated; decided anew for each.
    wanted: Box<dyn FnMut() -> bool>,
}

impl Maker {
    fn everything() -> Self {
        Self { count: 0, wanted: Box::new(|| true) }
    }

    /// `above` are the definitions in which the value stands.
    fn value(&mut self, schema: &Schema, above: &mut Vec<&'static str>) -> Option<Value> {
        let Some(name) = schema.definition() else { return self.shape(schema, above) };
        if above.iter().filter(|seen| **seen == name).count() > 1 {
            return None;
        }
        above.push(name);
        let value = match name.rsplit('.').next().unwrap_or_default() {
            "Duration" => Some(json!("1h2m3.5s")),
            "JSONSchemaPropsOrBool" => Some(json!(true)),
            "JSONSchemaPropsOrArray" => Some(json!([{"type": "string"}, {"maximum": 2.5}])),
            "JSONSchemaPropsOrStringArray" => Some(json!(["a", "b"])),
            _ => self.shape(schema, above),
        };
        above.pop();
        value
    }

    fn shape(&mut self, schema: &Schema, above: &mut Vec<&'static str>) -> Option<Value> {
        self.count += 1;
        let n = self.count;
        Some(match schema.shape() {
            Shape::Object => {
                let mut fields = Map::new();
                for (name, field) in schema.properties() {
                    if matches!(name, "apiVersion" | "kind") && is_whole(schema) {
                        continue;
                    }
                    if !schema.is_required(name) && !(self.wanted)() {
                        continue;
                    }
                    if let Some(value) = self.value(field, above) {
                        fields.insert(name.to_owned(), value);
                    }
                }
                Value::Object(fields)
            }
            Shape::Map(values) => json!({format!("a{n}"): self.value(values, above)?, format!("b{n}"): self.value(values, above)?}),
            Shape::Array(items) => json!([self.value(items, above)?, self.value(items, above)?]),
            Shape::String(Format::Byte) => STANDARD.encode(n.to_string()).into(),
            Shape::String(Format::Time) => format!("2026-01-02T{:02}:{:02}:{:02}Z", n / 3_600 % 24, n / 60 % 60, n % 60).into(),
            Shape::String(Format::MicroTime) => format!("2026-01-02T03:04:05.{n:06}Z").into(),
            Shape::String(_) => format!("s{n}").into(),
            Shape::Integer(_) => n.into(),
            Shape::Number => (n as f64 + 0.5).into(),
            Shape::Boolean => true.into(),
            Shape::IntOrString if n % 2 == 0 => n.into(),
            Shape::IntOrString => format!("{n}%").into(),
            Shape::Quantity => format!("{n}m").into(),
            Shape::Any => json!({"any": [n, "x", 1.5, null, {"y": true}]}),
        })
    }
}

/// Whether a part of an object could stand alone. Only envelopes say of which kind that is, and where there is
/// none nothing does; of anything else a kind is a field like others.
fn is_whole(schema: &Schema) -> bool {
    schema.property("metadata").is_some() || schema.definition().is_some_and(|name| name.ends_with(".DeleteOptions"))
}

/// Takes out what was made up for messages without fields, as schemas cannot say that there are none.
fn sendable(message: &'static Message, value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| sendable(message, item)),
        Value::Object(fields) => {
            if message.fields().is_empty() {
                fields.clear();
            }
            for (name, value) in fields {
                let Some((_, field)) = message.named(name) else { continue };
                let table::Kind::Message(inner) = field.kind else { continue };
                match (field.shape, value) {
                    (table::Shape::Map, Value::Object(entries)) => entries.values_mut().for_each(|value| sendable(inner, value)),
                    (_, value) => sendable(inner, value),
                }
            }
        }
        _ => {}
    }
}

/// An object of a kind, with what the maker wants.
fn object(api_version: &str, kind: &str, maker: &mut Maker) -> Option<Value> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let message = table::root(api_version, kind)?;
    let mut object = maker.value(api_schema::of_gvk(group, version, kind)?, &mut Vec::new())?;
    sendable(message, &mut object);
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    Some(object)
}

/// An object of a kind with every field.
pub(super) fn whole(api_version: &str, kind: &str) -> Option<Value> {
    object(api_version, kind, &mut Maker::everything())
}

/// Served kinds, and what is sent to subresources.
fn kinds() -> Vec<(String, String)> {
    let served = builtin().iter().map(|kind| (kind.api_version(), kind.kind.clone()));
    let others = [("autoscaling/v1", "Scale"), ("policy/v1", "Eviction"), ("authentication.k8s.io/v1", "TokenRequest"), ("v1", "Status")];
    served.chain(others.map(|(api_version, kind)| (api_version.to_owned(), kind.to_owned()))).collect()
}

fn check(object: &Value) {
    let encoded = encode(object).expect("encodes");
    let decoded = decode(&encoded).expect("decodes").value;
    assert_eq!(differences(object, &decoded), [""; 0], "{} {}", object["apiVersion"], object["kind"]);
}

#[test]
fn an_object_with_every_field_is_the_same_when_it_comes_back() {
    for (api_version, kind) in kinds() {
        check(&whole(&api_version, &kind).expect("a schema"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_part_of_it_is_too(seed: u64, at in any::<proptest::sample::Index>()) {
        let kinds = kinds();
        let (api_version, kind) = at.get(&kinds);
        // A generator of our own: the same seed makes the same object.
        let mut state = seed | 1;
        let wanted = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state & 8 != 0
        };
        check(&object(api_version, kind, &mut Maker { count: 0, wanted: Box::new(wanted) }).expect("a schema"));
    }
}
