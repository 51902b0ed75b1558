//! How a value is owned, by its type: as a whole, by field, or by element. Only this file knows where types come from.

use api_model::message::Message;
use std::collections::BTreeMap;

use api_model::kind::Kind;
use api_schema::{ListType, MapType, Schema, Shape};
use serde_json::{Map, Value};

use super::set::{Element, FieldSet, Node};

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub enum Typing<'s> {
    /// Its schema.
    Known(&'s Schema),
    /// Unknown: objects are owned by field, other values as a whole.
    Deduced,
    /// An object with metadata, otherwise unknown.
    Custom,
}

/// How a value is owned.
pub(super) enum Form<'s> {
    /// As a whole: a scalar, an atomic list or map, or a value that does not fit its type.
    Whole,
    /// By field or entry.
    Fields,
    /// By element.
    Elements(List<'s>),
}

impl<'s> Typing<'s> {
    /// The type of a kind's objects; without a schema, what all objects have in common.
    pub fn new(kind: &'s Kind) -> Self {
        api_schema::of_kind(kind).map_or(Typing::Custom, Typing::Known)
    }

    pub(super) fn form(self, value: &Value) -> Form<'s> {
        let Typing::Known(schema) = self else {
            return if value.is_object() { Form::Fields } else { Form::Whole };
        };
        match (schema.shape(), value) {
            (Shape::Any, Value::Object(_)) => Form::Fields,
            (Shape::Object | Shape::Map(_), Value::Object(_)) if schema.map_type() == MapType::Granular => Form::Fields,
            (Shape::Array(items), Value::Array(_)) if schema.list_type() != ListType::Atomic => Form::Elements(List { schema, items }),
            _ => Form::Whole,
        }
    }

    /// The type of a field or entry.
    pub(super) fn field(self, name: &str) -> Self {
        let schema = match self {
            Typing::Known(schema) => schema.property(name).or_else(|| schema.additional()),
            Typing::Custom if name == "metadata" => api_schema::of_gvk("", "v1", "ConfigMap").and_then(|object| object.property(name)),
            Typing::Custom | Typing::Deduced => None,
        };
        schema.map_or(Typing::Deduced, Typing::Known)
    }

    /// Whether it is an object type with a field of that name, rather than a map with free keys.
    pub(super) fn declares(self, name: &str) -> bool {
        match self {
            Typing::Known(schema) => schema.property(name).is_some(),
            Typing::Custom => name == "metadata",
            Typing::Deduced => false,
        }
    }

    /// Whether an object of this type must have that field.
    pub(super) fn requires(self, name: &str) -> bool {
        matches!(self, Typing::Known(schema) if schema.is_required(name))
    }

    /// The type after one step of a path.
    fn step(self, element: &Element) -> Self {
        match (element.name(), self) {
            (Some(name), typing) => typing.field(name),
            (None, Typing::Known(schema)) => schema.items().map_or(Typing::Deduced, Typing::Known),
            (None, _) => Typing::Deduced,
        }
    }

    /// The set with every declared field that has a path of the set below it: an object is owned as long as one of its
    /// fields is.
    pub(super) fn with_parents(self, set: &FieldSet) -> FieldSet {
        let with = |(element, node): &(Element, Node)| {
            let children = self.step(element).with_parents(&node.children);
            let is_parent = !children.is_empty() && element.name().is_some_and(|name| self.declares(name));
            (element.clone(), Node { member: node.member || is_parent, children })
        };
        set.iter().map(with).collect()
    }
}

/// The type of a list whose elements have names.
#[derive(Clone, Copy)]
pub(super) struct List<'s> {
    schema: &'s Schema,
    items: &'s Schema,
}

/// The elements with one name: more than one for duplicates.
#[derive(Debug, PartialEq)]
pub(super) enum Bearers<'v> {
    One(&'v Value),
    Many(Vec<&'v Value>),
}

impl<'s> List<'s> {
    /// The type of its elements.
    pub(super) fn items(self) -> Typing<'s> {
        Typing::Known(self.items)
    }

    /// The name of an element.
    pub(super) fn name(self, value: &Value) -> Result<Element, Message> {
        if self.schema.list_type() == ListType::Set {
            return match value {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".into()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".into()),
                value => Ok(Element::value(value)),
            };
        }
        let Value::Object(fields) = value else {
            return Err("associative list with keys may not have non-map elements".into());
        };
        let mut keys = Map::new();
        for key in self.schema.list_map_keys() {
            let default = || serde_json::from_str(self.items.property(key)?.default_json()?).ok();
            let key_value = fields.get(key).filter(|value| !value.is_null()).cloned().or_else(default);
            let missing = || {
                let key = Value::from(key);
                format!("associative list with keys has an element that omits key field {key} (and doesn't have default value)")
            };
            keys.insert(key.to_owned(), key_value.ok_or_else(missing)?);
        }
        Ok(Element::keys(keys))
    }

    /// The elements by name, in the order of names; `None` where one has no name.
    pub(super) fn index(self, values: &[Value]) -> Option<Vec<(Element, Bearers<'_>)>> {
        let mut index: BTreeMap<Element, Bearers<'_>> = BTreeMap::new();
        for value in values {
            let name = self.name(value).ok()?;
            let bearers = match index.remove(&name) {
                None => Bearers::One(value),
                Some(Bearers::One(first)) => Bearers::Many(vec![first, value]),
                Some(Bearers::Many(mut all)) => {
                    all.push(value);
                    Bearers::Many(all)
                }
            };
            index.insert(name, bearers);
        }
        Some(index.into_iter().collect())
    }
}
