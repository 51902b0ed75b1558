//! Types of values and expressions, displayed as in cel-go.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// Any type, which only the evaluation determines.
    Dyn,
    /// `null`
    Null,
    /// `true` and `false`
    Bool,
    /// Whole numbers of 64 bits.
    Int,
    /// Unsigned whole numbers.
    Uint,
    /// Floating point numbers.
    Double,
    /// Texts.
    String,
    /// Bytes.
    Bytes,
    /// Spans of time.
    Duration,
    /// Points in time.
    Timestamp,
    /// Lists of one type.
    List(Arc<Type>),
    /// Maps from keys of one type to values of one type.
    Map(Arc<Type>, Arc<Type>),
    /// An optional value.
    Optional(Arc<Type>),
    /// Types as values.
    Type(Arc<Type>),
    /// Objects with known fields.
    Object(Arc<ObjectType>),
    /// An opaque type with its own functions: `kubernetes.Quantity`, `net.IP` and so on.
    Opaque(&'static str),
    /// A type parameter of a function, or a type that is not known yet.
    Var(u32),
}

/// Objects with known fields.
#[derive(Debug)]
pub struct ObjectType {
    /// The name in messages. Objects with the same name have the same type.
    pub name: String,
    /// Fields by their names in expressions.
    pub fields: BTreeMap<String, Type>,
    /// Whether other fields of any type are allowed.
    pub is_open: bool,
}

impl PartialEq for ObjectType {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ObjectType {}

pub(crate) const QUANTITY: &str = "kubernetes.Quantity";
pub(crate) const URL: &str = "kubernetes.URL";
pub(crate) const IP: &str = "net.IP";
pub(crate) const CIDR: &str = "net.CIDR";
pub(crate) const SEMVER: &str = "kubernetes.Semver";
pub(crate) const FORMAT: &str = "kubernetes.NamedFormat";
pub(crate) const AUTHORIZER: &str = "kubernetes.authorization.Authorizer";
pub(crate) const PATH_CHECK: &str = "kubernetes.authorization.PathCheck";
pub(crate) const GROUP_CHECK: &str = "kubernetes.authorization.GroupCheck";
pub(crate) const RESOURCE_CHECK: &str = "kubernetes.authorization.ResourceCheck";
pub(crate) const DECISION: &str = "kubernetes.authorization.Decision";

impl Type {
    /// A list of values of a type.
    pub fn list(of: Self) -> Self {
        Self::List(Arc::new(of))
    }

    /// A map from texts to values of a type.
    pub fn map(of: Self) -> Self {
        Self::Map(Arc::new(Self::String), Arc::new(of))
    }

    /// An optional value.
    pub fn optional(of: Self) -> Self {
        Self::Optional(Arc::new(of))
    }

    /// Objects with known fields.
    pub fn object<'a>(name: &str, fields: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        let fields = fields.into_iter().map(|(name, of)| (name.to_owned(), of)).collect();
        Self::Object(Arc::new(ObjectType { name: name.to_owned(), fields, is_open: false }))
    }

    /// The variable `authorizer`.
    pub fn authorizer() -> Self {
        Self::Opaque(AUTHORIZER)
    }

    /// The variable `authorizer.requestResource`.
    pub fn resource_check() -> Self {
        Self::Opaque(RESOURCE_CHECK)
    }

    /// The type of `JSONPatch{…}`.
    pub fn json_patch() -> Self {
        Self::object("JSONPatch", [("op", Self::String), ("path", Self::String), ("from", Self::String), ("value", Self::Dyn)])
    }

    /// The type of `Object{…}`; its fields have the types `Object.spec` and so on.
    pub fn built(name: &str) -> Self {
        Self::Object(Arc::new(ObjectType { name: name.to_owned(), fields: BTreeMap::new(), is_open: true }))
    }
}

/// The type of a name that denotes a type, such as `int`; `None` for other names.
pub(crate) fn named_type(name: &str) -> Option<Type> {
    let any = || Arc::new(Type::Dyn);
    let of = match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "list" => Type::List(any()),
        "map" => Type::Map(any(), any()),
        "null_type" => Type::Null,
        "optional_type" => Type::Optional(any()),
        "string" => Type::String,
        "type" => Type::Type(any()),
        "uint" => Type::Uint,
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        _ => Type::Opaque([CIDR, FORMAT, IP, QUANTITY, SEMVER, URL].into_iter().find(|opaque| *opaque == name)?),
    };
    Some(Type::Type(Arc::new(of)))
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn | Self::Var(_) => f.write_str("dyn"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("google.protobuf.Duration"),
            Self::Timestamp => f.write_str("google.protobuf.Timestamp"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Type(of) => write!(f, "type({of})"),
            Self::Object(object) => f.write_str(&object.name),
            Self::Opaque(name) => f.write_str(name),
        }
    }
}
