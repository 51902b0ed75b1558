//! Values of expressions. Lists and maps of objects stay JSON until an expression accesses them.

mod compare;
mod json;
mod key;
pub(crate) mod size;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;
use semver::Version;
use serde_json::Value as Json;

pub(crate) use compare::{compare, equals, list_kind};
pub use key::Key;
pub(crate) use key::whole;

use crate::authorizer::{Authorizer, Check, Question, Stage};
use crate::error::EvaluateError;
use crate::named_format::Format;
use crate::schema::Shape;
use crate::types::{self, Type};
use crate::url::Url;

/// A value. Clones are cheap.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value<'v> {
    /// `null`
    Null,
    /// `true` and `false`
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// An unsigned whole number.
    Uint(u64),
    /// A floating point number.
    Double(f64),
    /// A text.
    String(Text<'v>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A span of time in nanoseconds.
    Duration(i64),
    /// A point in time.
    Timestamp(Timestamp),
    /// A list.
    List(Arc<Vec<Value<'v>>>),
    /// A map.
    Map(Arc<BTreeMap<Key, Value<'v>>>),
    /// A map in which a missing key has the second value. The key is not in the map all the same.
    MapWithDefault(Arc<(BTreeMap<Key, Value<'v>>, Value<'v>)>),
    /// A message: the name of its type and its fields.
    Message(Arc<(String, BTreeMap<Key, Value<'v>>)>),
    /// A JSON list or object, with its shape.
    Json(&'v Json, Shape<'v>),
    /// An optional value.
    Optional(Option<Arc<Value<'v>>>),
    /// A type.
    Type(Type),
    /// `kubernetes.Quantity`, in billionths.
    Quantity(i128),
    /// `kubernetes.URL`
    Url(Arc<Url>),
    /// `net.IP`
    Ip(IpAddr),
    /// `net.CIDR`
    Cidr(IpNet),
    /// `kubernetes.Semver`
    Semver(Arc<Version>),
    /// `kubernetes.NamedFormat`
    Format(&'static Format),
    /// An authorizer, an authorization check, or its decision.
    Authorizer(Box<Question<'v>>),
}

/// A text, borrowed from an object or made by an expression.
#[derive(Clone, Debug)]
pub enum Text<'v> {
    /// A text of an object.
    Borrowed(&'v str),
    /// A text from an expression.
    Shared(Arc<str>),
}

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl From<&str> for Value<'_> {
    fn from(text: &str) -> Self {
        Self::String(Text::Shared(text.into()))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::String(Text::Shared(text.into()))
    }
}

impl From<bool> for Value<'_> {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl<'v> Value<'v> {
    /// JSON with a shape.
    pub fn json(json: &'v Json, shape: Shape<'v>) -> Self {
        json::read(json, shape)
    }

    /// An optional value.
    pub fn optional(value: Option<Self>) -> Self {
        Self::Optional(value.map(Arc::new))
    }

    /// The variable `authorizer`.
    pub fn authorizer(authorizer: &'v dyn Authorizer) -> Self {
        Self::Authorizer(Box::new(Question { authorizer, check: Check::default(), stage: Stage::Authorizer }))
    }

    /// The variable `authorizer.requestResource`: a check without the verb.
    pub fn resource_check(authorizer: &'v dyn Authorizer, check: Check) -> Self {
        Self::Authorizer(Box::new(Question { authorizer, check, stage: Stage::Resource }))
    }

    /// The text, if the value is a text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The truth value, if the value is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// The value as JSON; an error for a value without a JSON form.
    pub fn to_json(&self) -> Result<Json, EvaluateError> {
        json::write(self)
    }

    /// Whether the value's JSON is nested at most `depth` deep and has at most `limit` parts and characters. Values
    /// share their parts, so the JSON can be far larger than the cost of the value.
    pub fn is_within(&self, depth: usize, limit: u64) -> bool {
        size::is_within(self, depth, limit)
    }

    /// The type, as far as the value determines it.
    pub fn type_of(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
            Self::Duration(_) => Type::Duration,
            Self::Timestamp(_) => Type::Timestamp,
            Self::List(_) | Self::Json(Json::Array(_), _) => Type::list(Type::Dyn),
            Self::Map(_) | Self::MapWithDefault(_) | Self::Json(..) => Type::Map(Arc::new(Type::Dyn), Arc::new(Type::Dyn)),
            Self::Message(message) => Type::built(&message.0),
            Self::Optional(_) => Type::optional(Type::Dyn),
            Self::Type(_) => Type::Type(Arc::new(Type::Dyn)),
            Self::Quantity(_) => Type::Opaque(types::QUANTITY),
            Self::Url(_) => Type::Opaque(types::URL),
            Self::Ip(_) => Type::Opaque(types::IP),
            Self::Cidr(_) => Type::Opaque(types::CIDR),
            Self::Semver(_) => Type::Opaque(types::SEMVER),
            Self::Format(_) => Type::Opaque(types::FORMAT),
            Self::Authorizer(question) => Type::Opaque(match question.stage {
                Stage::Authorizer => types::AUTHORIZER,
                Stage::Path => types::PATH_CHECK,
                Stage::Group => types::GROUP_CHECK,
                Stage::Resource => types::RESOURCE_CHECK,
                Stage::Decided(_) => types::DECISION,
            }),
        }
    }

    pub(crate) fn list(values: Vec<Self>) -> Self {
        Self::List(Arc::new(values))
    }

    /// The size for costs: bytes of texts and addresses, elements of lists, entries of maps; 1 for other values.
    pub(crate) fn size(&self) -> u64 {
        let len = match self {
            // Bytes, because counting the characters would read the whole text.
            Self::String(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.len(),
            Self::Map(map) => map.len(),
            Self::MapWithDefault(map) => map.0.len(),
            Self::Message(message) => message.1.len(),
            Self::Json(Json::Array(list), _) => list.len(),
            Self::Json(Json::Object(map), _) => map.len(),
            Self::Ip(IpAddr::V4(_)) | Self::Cidr(IpNet::V4(_)) => 4,
            Self::Ip(IpAddr::V6(_)) | Self::Cidr(IpNet::V6(_)) => 16,
            _ => 1,
        };
        len as u64
    }

    /// The elements of a list.
    pub(crate) fn elements(&self) -> Option<Elements<'_, 'v>> {
        match self {
            Self::List(list) => Some(Elements::Made(list.iter())),
            Self::Json(Json::Array(list), shape) => Some(Elements::Json(list.iter(), shape.element())),
            _ => None,
        }
    }

    /// The entries of a map that expressions see.
    pub(crate) fn entries(&self) -> Option<Vec<(Key, Self)>> {
        match self {
            Self::Map(map) => Some(map.iter().map(|(key, value)| (key.clone(), value.clone())).collect()),
            Self::MapWithDefault(map) => Some(map.0.iter().map(|(key, value)| (key.clone(), value.clone())).collect()),
            Self::Message(message) => Some(message.1.iter().map(|(key, value)| (key.clone(), value.clone())).collect()),
            Self::Json(Json::Object(map), shape) => Some(json::entries(map, *shape)),
            _ => None,
        }
    }

    /// The value of a key of a map.
    pub(crate) fn at_key(&self, key: &Key) -> Option<Self> {
        match self {
            Self::Map(map) => map.get(key).cloned(),
            Self::MapWithDefault(map) => Some(map.0.get(key).unwrap_or(&map.1).clone()),
            Self::Message(message) => message.1.get(key).cloned(),
            Self::Json(Json::Object(map), shape) => match key {
                Key::String(name) => json::field(map, name, *shape),
                _ => None,
            },
            _ => None,
        }
    }

    /// The value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<Self> {
        match self {
            Self::Json(Json::Object(map), shape) => json::field(map, name, *shape),
            _ => self.at_key(&Key::String(name.into())),
        }
    }

    pub(crate) fn is_map(&self) -> bool {
        matches!(self, Self::Map(_) | Self::MapWithDefault(_) | Self::Message(_) | Self::Json(Json::Object(_), _))
    }

    /// Whether the key is in the map (the operator `in`).
    pub(crate) fn contains_key(&self, key: &Key) -> bool {
        match self {
            Self::MapWithDefault(map) => map.0.contains_key(key),
            map => map.at_key(key).is_some(),
        }
    }
}

/// An iterator over the elements of a list.
pub(crate) enum Elements<'a, 'v> {
    Made(std::slice::Iter<'a, Value<'v>>),
    Json(std::slice::Iter<'v, Json>, Shape<'v>),
}

impl<'v> Iterator for Elements<'_, 'v> {
    type Item = Value<'v>;

    fn next(&mut self) -> Option<Value<'v>> {
        match self {
            Self::Made(values) => values.next().cloned(),
            Self::Json(values, shape) => values.next().map(|json| json::read(json, *shape)),
        }
    }

    fn nth(&mut self, n: usize) -> Option<Value<'v>> {
        match self {
            Self::Made(values) => values.nth(n).cloned(),
            Self::Json(values, shape) => values.nth(n).map(|json| json::read(json, *shape)),
        }
    }
}
