//! Schema trees of the built-in kinds, built at first use and kept for the life of the process.
//!
//! One generator serves all kinds, so that it generates a shared type (Pod specs, metadata) once. The tree has only
//! names, shapes and facts. The generated JSON, three quarters of it descriptions, is dropped. The number of types
//! limits the memory.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{LazyLock, OnceLock};

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::facts;
use crate::schema::{Definition, Facts, Format, Node, Schema, Struct};
use crate::types::TYPES;

/// The prefix of references to definitions in OpenAPI v3.
pub(crate) const DEFINITIONS: &str = "#/components/schemas/";

/// The schema of the metadata that objects of every kind have.
pub(crate) fn metadata() -> Option<Schema> {
    let metadata = of_gvk("", "v1", "ConfigMap")?.property("metadata")?;
    match &metadata.node {
        Node::Definition(definition) => Some(Schema::plain(Node::Definition(definition))),
        _ => None,
    }
}

/// The schema of a body by its group, version and kind: served kinds, bodies of subresources
/// (`Scale`, `Eviction`, `Binding`, `TokenRequest`) and `Status`.
pub fn of_gvk(group: &str, version: &str, kind: &str) -> Option<&'static Schema> {
    static INDEX: LazyLock<HashMap<(&str, &str, &str), usize>> =
        LazyLock::new(|| TYPES.iter().enumerate().map(|(at, t)| ((t.group, t.version, t.kind), at)).collect());
    static ROOTS: [OnceLock<Schema>; TYPES.len()] = [const { OnceLock::new() }; TYPES.len()];
    let at = *INDEX.get(&(group, version, kind))?;
    let (found, root) = (TYPES.get(at)?, ROOTS.get(at)?);
    Some(root.get_or_init(|| Builder::global().build(found.generate)))
}

/// A generator with upstream's names and reference style.
pub(crate) fn generator() -> SchemaGenerator {
    SchemaSettings::openapi3().with(|s| s.definitions_path = "/components/schemas".into()).into_generator()
}

/// Removes the new definitions from the generator, as JSON. It keeps `true` instead of each, so that it does not generate
/// the definition again.
pub(crate) fn take_new(generator: &mut SchemaGenerator) -> Vec<(String, Value)> {
    let new = generator.definitions_mut().iter_mut().filter(|(_, body)| body.is_object());
    new.map(|(name, body)| (name.clone(), std::mem::replace(body, Value::Bool(true)))).collect()
}

/// Builds definitions. Its lock is taken only at the first use of a kind.
struct Builder {
    generator: SchemaGenerator,
    definitions: HashMap<&'static str, &'static Definition>,
    names: HashSet<&'static str>,
}

impl Builder {
    fn global() -> parking_lot::MutexGuard<'static, Self> {
        static BUILDER: LazyLock<parking_lot::Mutex<Builder>> = LazyLock::new(|| {
            parking_lot::Mutex::new(Builder { generator: generator(), definitions: HashMap::new(), names: HashSet::new() })
        });
        BUILDER.lock()
    }

    /// The schema of one type. Builds also every type that it refers to.
    fn build(&mut self, generate: fn(&mut SchemaGenerator) -> schemars::Schema) -> Schema {
        let root = generate(&mut self.generator);
        for (name, body) in take_new(&mut self.generator) {
            let definition = self.definition(&name);
            let body = self.body(definition.name, &body);
            // Set at most once: the generator returns the JSON of a definition only when it is new.
            let _ = definition.body.set(body);
        }
        Schema::plain(self.node("", root.as_value()))
    }

    fn name(&mut self, name: &str) -> &'static str {
        if let Some(known) = self.names.get(name) {
            return known;
        }
        let leaked: &'static str = Box::leak(name.into());
        self.names.insert(leaked);
        leaked
    }

    fn definition(&mut self, name: &str) -> &'static Definition {
        if let Some(known) = self.definitions.get(name) {
            return known;
        }
        let name = self.name(name);
        let leaked: &'static Definition = Box::leak(Box::new(Definition { name, body: OnceLock::new() }));
        self.definitions.insert(name, leaked);
        leaked
    }

    fn body(&mut self, name: &'static str, json: &Value) -> Schema {
        let node = match name {
            "io.k8s.apimachinery.pkg.api.resource.Quantity" => Node::Quantity,
            "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime" => Node::String(Format::MicroTime),
            _ => self.node(name, json),
        };
        Schema { node, facts: Facts::Known(facts::of_field(name, facts::SELF)) }
    }

    /// The node of a JSON schema; `owner` is the definition that has its fields.
    fn node(&mut self, owner: &'static str, json: &Value) -> Node {
        if let Some(target) = reference(json) {
            return Node::Definition(self.definition(target));
        }
        let format = json.get("format").and_then(Value::as_str).unwrap_or_default();
        match json.get("type").and_then(Value::as_str) {
            Some("array") => Node::Array(Box::new(self.child(json.get("items")))),
            Some("string") => Node::String(string_format(format)),
            Some("integer") => Node::Integer(if format == "int32" { Format::Int32 } else { Format::Int64 }),
            Some("number") => Node::Number,
            Some("boolean") => Node::Boolean,
            Some("object") => match (json.get("properties").and_then(Value::as_object), json.get("additionalProperties")) {
                (Some(properties), _) => Node::Struct(Box::new(self.fields(owner, properties, json.get("required")))),
                (None, Some(values)) => Node::Map(Box::new(self.child(Some(values)))),
                (None, None) => Node::Any,
            },
            _ if json.get("x-kubernetes-int-or-string").is_some() => Node::IntOrString,
            _ => Node::Any,
        }
    }

    fn child(&mut self, json: Option<&Value>) -> Schema {
        Schema::plain(json.map_or(Node::Any, |json| self.node("", json)))
    }

    fn fields(&mut self, owner: &'static str, properties: &Map<String, Value>, required: Option<&Value>) -> Struct {
        let mut fields: Vec<_> = properties.iter().map(|(name, json)| (self.name(name).into(), self.field(owner, name, json))).collect();
        fields.sort_unstable_by(|(one, _): &(Cow<'static, str>, Schema), (other, _)| one.cmp(other));
        let required = required.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let required = facts::required(owner, required).into_iter().map(|name| self.name(name).into()).collect();
        Struct { fields: fields.into(), required }
    }

    fn field(&mut self, owner: &'static str, name: &str, json: &Value) -> Schema {
        let mut node = self.node("", json);
        if let Node::Array(element) | Node::Map(element) = &mut node {
            element.facts = Facts::Known(facts::of_field(owner, &format!("{name}[]")));
        }
        Schema { node, facts: Facts::Known(facts::of_field(owner, name)) }
    }
}

/// The definition that a schema refers to, directly, or in an `allOf` beside a description.
pub(crate) fn reference(json: &Value) -> Option<&str> {
    let target = json.get("$ref").or_else(|| json.get("allOf")?.get(0)?.get("$ref"))?;
    target.as_str()?.strip_prefix(DEFINITIONS)
}

fn string_format(format: &str) -> Format {
    match format {
        "byte" => Format::Byte,
        "date-time" => Format::Time,
        _ => Format::None,
    }
}

#[cfg(test)]
mod tests;
