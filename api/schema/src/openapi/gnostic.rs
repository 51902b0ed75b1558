//! OpenAPI v2 as protobuf, in the messages of gnostic's `openapiv2/OpenAPIv2.proto`, which Go clients request first.
//! The encoder is hand-written: the messages are simple, and only encoding is needed.
//!
//! The field numbers are those of the published definition. The encoder does not write what Skiff's documents never
//! contain (examples, XML, the items of parameters that are lists).

use serde_json::{Map, Value};

/// A `Document`. Paths, definitions and parameters are added one by one.
pub(super) struct Encoder {
    document: Message,
    paths: Message,
    definitions: Message,
    parameters: Message,
}

impl Encoder {
    /// Starts with all other fields of the document.
    pub(super) fn new(frame: &Value) -> Self {
        let mut document = Message::default();
        document.text(1, frame.get("swagger"));
        if let Some(info) = frame.get("info") {
            let mut message = Message::default();
            message.text(1, info.get("title"));
            message.text(2, info.get("version"));
            document.message(2, &message);
        }
        for requirement in array(frame.get("security")) {
            let mut message = Message::default();
            for (name, scopes) in requirement.as_object().into_iter().flatten() {
                let mut values = Message::default();
                values.texts(1, Some(scopes));
                message.named(1, name, &values);
            }
            document.message(12, &message);
        }
        if let Some(definitions) = object(frame.get("securityDefinitions")) {
            let mut message = Message::default();
            definitions.iter().for_each(|(name, body)| message.named(1, name, &api_key(body)));
            document.message(13, &message);
        }
        document.extensions(16, frame);
        Self { document, paths: Message::default(), definitions: Message::default(), parameters: Message::default() }
    }

    /// Adds a path.
    pub(super) fn path(&mut self, path: &str, item: &Value) {
        self.paths.named(2, path, &path_item(item));
    }

    /// Adds a definition.
    pub(super) fn definition(&mut self, name: &str, body: &Value) {
        self.definitions.named(1, name, &schema(body));
    }

    /// Adds a parameter that paths refer to.
    pub(super) fn parameter(&mut self, name: &str, body: &Value) {
        self.parameters.named(1, name, &parameter(body));
    }

    /// The bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.document.message(8, &self.paths);
        self.document.message(9, &self.definitions);
        if !self.parameters.0.is_empty() {
            self.document.message(10, &self.parameters);
        }
        self.document.0
    }
}

/// `SecurityDefinitionsItem` with an `ApiKeySecurity`.
fn api_key(body: &Value) -> Message {
    let mut key = Message::default();
    for (number, field) in [(1, "type"), (2, "name"), (3, "in"), (4, "description")] {
        key.text(number, body.get(field));
    }
    let mut item = Message::default();
    item.message(2, &key);
    item
}

/// `PathItem`.
fn path_item(item: &Value) -> Message {
    let mut out = Message::default();
    for (number, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (6, "options"), (7, "head"), (8, "patch")] {
        if let Some(body) = item.get(method) {
            out.message(number, &operation(body));
        }
    }
    array(item.get("parameters")).for_each(|body| out.message(9, &parameters_item(body)));
    out.extensions(10, item);
    out
}

/// `Operation`.
fn operation(body: &Value) -> Message {
    let mut out = Message::default();
    out.texts(1, body.get("tags"));
    out.text(3, body.get("description"));
    out.text(5, body.get("operationId"));
    out.texts(6, body.get("produces"));
    out.texts(7, body.get("consumes"));
    array(body.get("parameters")).for_each(|body| out.message(8, &parameters_item(body)));
    if let Some(responses) = object(body.get("responses")) {
        let mut message = Message::default();
        responses.iter().for_each(|(code, body)| message.named(1, code, &response(body)));
        out.message(9, &message);
    }
    out.texts(10, body.get("schemes"));
    out.extensions(13, body);
    out
}

/// `ParametersItem` with a `Parameter` or a `JsonReference` to one.
fn parameters_item(body: &Value) -> Message {
    let mut item = Message::default();
    match body.get("$ref") {
        None => item.message(1, &parameter(body)),
        target => {
            let mut reference = Message::default();
            reference.text(1, target);
            item.message(2, &reference);
        }
    }
    item
}

/// `Parameter`.
fn parameter(body: &Value) -> Message {
    let location = body.get("in").and_then(Value::as_str).unwrap_or_default();
    let mut parameter = Message::default();
    if location == "body" {
        let mut message = Message::default();
        message.text(1, body.get("description"));
        message.text(2, body.get("name"));
        message.text(3, body.get("in"));
        message.flag(4, body.get("required"));
        if let Some(body) = body.get("schema") {
            message.message(5, &schema(body));
        }
        parameter.message(1, &message);
    } else {
        // Query and form parameters have an additional field in the middle, so the numbers after it are shifted.
        let (form, shift) = match location {
            "header" => (1, 0),
            "formData" => (2, 1),
            "query" => (3, 1),
            _ => (4, 0),
        };
        let mut message = Message::default();
        message.flag(1, body.get("required"));
        message.text(2, body.get("in"));
        message.text(3, body.get("description"));
        message.text(4, body.get("name"));
        message.text(5 + shift, body.get("type"));
        message.text(6 + shift, body.get("format"));
        message.flag(19 + shift, body.get("uniqueItems"));
        let mut other = Message::default();
        other.message(form, &message);
        parameter.message(2, &other);
    }
    parameter
}

/// `ResponseValue` with a `Response`.
fn response(body: &Value) -> Message {
    let mut out = Message::default();
    out.text(1, body.get("description"));
    if let Some(body) = body.get("schema") {
        let mut item = Message::default();
        item.message(1, &schema(body));
        out.message(2, &item);
    }
    out.extensions(5, body);
    let mut value = Message::default();
    value.message(1, &out);
    value
}

/// `Schema`.
fn schema(body: &Value) -> Message {
    let mut out = Message::default();
    out.text(1, body.get("$ref"));
    out.text(2, body.get("format"));
    out.text(3, body.get("title"));
    out.text(4, body.get("description"));
    out.any(5, body.get("default"));
    for (number, name) in [(6, "multipleOf"), (7, "maximum"), (9, "minimum")] {
        out.double(number, body.get(name));
    }
    for (number, name) in [(8, "exclusiveMaximum"), (10, "exclusiveMinimum"), (16, "uniqueItems")] {
        out.flag(number, body.get(name));
    }
    for (number, name) in
        [(11, "maxLength"), (12, "minLength"), (14, "maxItems"), (15, "minItems"), (17, "maxProperties"), (18, "minProperties")]
    {
        out.integer(number, body.get(name));
    }
    out.text(13, body.get("pattern"));
    out.texts(19, body.get("required"));
    array(body.get("enum")).for_each(|value| out.any(20, Some(value)));
    if let Some(values) = body.get("additionalProperties") {
        let mut item = Message::default();
        match values {
            Value::Bool(_) => item.flag(2, Some(values)),
            values => item.message(1, &schema(values)),
        }
        out.message(21, &item);
    }
    if let Some(kind) = body.get("type") {
        let mut item = Message::default();
        item.text(1, Some(kind));
        item.texts(1, Some(kind));
        out.message(22, &item);
    }
    if let Some(items) = body.get("items") {
        let mut item = Message::default();
        item.message(1, &schema(items));
        out.message(23, &item);
    }
    array(body.get("allOf")).for_each(|part| out.message(24, &schema(part)));
    if let Some(properties) = object(body.get("properties")) {
        let mut message = Message::default();
        properties.iter().for_each(|(name, body)| message.named(1, name, &schema(body)));
        out.message(25, &message);
    }
    out.extensions(31, body);
    out
}

fn object(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

fn array(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

/// The bytes of a message. Absent values are not written.
#[derive(Default)]
struct Message(Vec<u8>);

/// Wire types of protobuf.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f | 0x80) as u8);
            value >>= 7;
        }
        self.0.push((value & 0x7f) as u8);
    }

    fn tag(&mut self, number: u64, wire: u64) {
        self.varint(number << 3 | wire);
    }

    fn bytes(&mut self, number: u64, bytes: &[u8]) {
        self.tag(number, LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, number: u64, message: &Message) {
        self.bytes(number, &message.0);
    }

    /// A `Named…` message: a name and a value.
    fn named(&mut self, number: u64, name: &str, value: &Message) {
        let mut pair = Message::default();
        pair.bytes(1, name.as_bytes());
        pair.message(2, value);
        self.message(number, &pair);
    }

    fn text(&mut self, number: u64, value: Option<&Value>) {
        if let Some(text) = value.and_then(Value::as_str).filter(|text| !text.is_empty()) {
            self.bytes(number, text.as_bytes());
        }
    }

    fn texts(&mut self, number: u64, values: Option<&Value>) {
        array(values).filter_map(Value::as_str).for_each(|text| self.bytes(number, text.as_bytes()));
    }

    fn flag(&mut self, number: u64, value: Option<&Value>) {
        if value.and_then(Value::as_bool) == Some(true) {
            self.tag(number, VARINT);
            self.varint(1);
        }
    }

    fn integer(&mut self, number: u64, value: Option<&Value>) {
        if let Some(value) = value.and_then(Value::as_u64).filter(|value| *value != 0) {
            self.tag(number, VARINT);
            self.varint(value);
        }
    }

    fn double(&mut self, number: u64, value: Option<&Value>) {
        if let Some(value) = value.and_then(Value::as_f64) {
            self.tag(number, FIXED64);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// `Any` with the value in `yaml`; JSON is valid YAML.
    fn any(&mut self, number: u64, value: Option<&Value>) {
        if let Some(value) = value {
            self.message(number, &any(value));
        }
    }

    /// Every `x-…` entry of an object as `NamedAny`.
    fn extensions(&mut self, number: u64, body: &Value) {
        for (name, value) in body.as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("x-")) {
            self.named(number, name, &any(value));
        }
    }
}

fn any(value: &Value) -> Message {
    let mut out = Message::default();
    out.bytes(2, value.to_string().as_bytes());
    out
}
