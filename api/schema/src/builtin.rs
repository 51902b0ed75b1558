//! Schema trees of the built-in kinds, built at first use and kept for the life of the process.
//!
//! All kinds share the definitions (Pod specs, metadata), and a definition is parsed when the first kind needs it. The tree
//! has only names, shapes and facts. The number of types limits the memory.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{LazyLock, OnceLock};

use serde_json::{Map, Value};

use crate::facts;
use crate::schema::{Definition, Facts, Format, Node, Schema, Struct};
use crate::types::{self, Types};

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
    static ROOTS: LazyLock<HashMap<&str, OnceLock<Schema>>> =
        LazyLock::new(|| types::kinds().keys().map(|gvk| (*gvk, OnceLock::new())).collect());
    let (gvk, root) = ROOTS.get_key_value(format!("{group}/{version}/{kind}").as_str())?;
    Some(root.get_or_init(|| Builder::global().build(types::kinds().get(gvk).copied().unwrap_or_default())))
}

/// Builds definitions. Its lock is taken only at the first use of a kind.
#[derive(Default)]
struct Builder {
    definitions: HashMap<&'static str, &'static Definition>,
    /// Definitions without a body.
    pending: Vec<&'static Definition>,
    names: HashSet<&'static str>,
}

impl Builder {
    fn global() -> parking_lot::MutexGuard<'static, Self> {
        static BUILDER: LazyLock<parking_lot::Mutex<Builder>> = LazyLock::new(parking_lot::Mutex::default);
        BUILDER.lock()
    }

    /// The schema of the type of that name. Builds also every type that it refers to.
    fn build(&mut self, name: &str) -> Schema {
        let root = self.definition(name);
        while let Some(definition) = self.pending.pop() {
            let json = Types::shapes().schema(definition.name).and_then(|json| serde_json::from_str(json).ok());
            let body = self.body(definition.name, &json.unwrap_or_default());
            // Set at most once: only a new definition is pending.
            let _ = definition.body.set(body);
        }
        Schema::plain(Node::Definition(root))
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
        self.pending.push(leaked);
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
