//! A schema as a tree that callers walk along with a value. Each node has the shape of the value and its list, map and
//! patch semantics. A node that refers to a shared definition resolves it on access, so recursive types
//! (`JSONSchemaProps`) need no special case.

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::facts::Fact;
use crate::strategy::{ListType, MapType, PatchStrategy};

/// The schema of a field, an element or a whole object. It takes two words of memory besides its children.
#[derive(Debug)]
pub struct Schema {
    pub(crate) node: Node,
    pub(crate) facts: Facts,
}

/// The facts about a value besides its shape.
#[derive(Debug)]
pub(crate) enum Facts {
    /// From the tables, for built-in kinds.
    Known(&'static Fact),
    /// From the definition of a custom resource.
    Defined(Box<Defined>),
}

/// The facts in the definition of a custom resource.
#[derive(Debug)]
pub(crate) struct Defined {
    pub(crate) list_type: ListType,
    pub(crate) list_map_keys: Vec<String>,
    pub(crate) map_type: MapType,
    /// JSON text.
    pub(crate) default: Option<String>,
    pub(crate) preserve_unknown_fields: bool,
}

/// The stored shape of a schema; [`Schema::shape`] resolves definitions.
#[derive(Debug)]
pub(crate) enum Node {
    Definition(&'static Definition),
    Struct(Box<Struct>),
    Map(Box<Schema>),
    Array(Box<Schema>),
    String(Format),
    Integer(Format),
    Number,
    Boolean,
    IntOrString,
    Quantity,
    Any,
}

/// The fields of an object type, ordered by name.
#[derive(Debug)]
pub(crate) struct Struct {
    pub(crate) fields: Box<[(Cow<'static, str>, Schema)]>,
    pub(crate) required: Box<[Cow<'static, str>]>,
}

/// A named type that several schemas share. The body is set once, when the type is first built.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    pub(crate) body: OnceLock<Schema>,
}

/// The shape of a value, with resolved definitions.
#[derive(Clone, Copy, Debug)]
pub enum Shape<'a> {
    /// An object with known fields: see [`Schema::property`], [`Schema::properties`], [`Schema::is_required`].
    Object,
    /// An object with free keys whose values have this schema.
    Map(&'a Schema),
    /// A list of elements of this schema: see [`Schema::list_type`] and [`Schema::merge_key`].
    Array(&'a Schema),
    /// A string.
    String(Format),
    /// A whole number: [`Format::Int32`], [`Format::Int64`] or [`Format::None`].
    Integer(Format),
    /// A number with a fraction.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A whole number or a string, such as a port or a percentage.
    IntOrString,
    /// A quantity such as `500m` or `1Gi`: a string, or a number with the same meaning.
    Quantity,
    /// Any value, which the server does not change (`RawExtension`, `JSON`, `FieldsV1`).
    Any,
}

/// The format of a string or number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// No format.
    #[default]
    None,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// Bytes in base64.
    Byte,
    /// An RFC 3339 time in whole seconds (`metav1.Time`).
    Time,
    /// An RFC 3339 time with microseconds (`metav1.MicroTime`).
    MicroTime,
}

impl Schema {
    pub(crate) const fn plain(node: Node) -> Self {
        Self { node, facts: Facts::Known(&Fact::NONE) }
    }

    /// The body of the definition that the schema refers to, else the schema itself.
    fn resolved(&self) -> &Self {
        let mut schema = self;
        while let Node::Definition(definition) = &schema.node {
            match definition.body.get() {
                Some(body) => schema = body,
                None => return &ANY,
            }
        }
        schema
    }

    /// The shape of the value.
    pub fn shape(&self) -> Shape<'_> {
        match &self.resolved().node {
            Node::Struct(_) => Shape::Object,
            Node::Map(values) => Shape::Map(values),
            Node::Array(items) => Shape::Array(items),
            Node::String(format) => Shape::String(*format),
            Node::Integer(format) => Shape::Integer(*format),
            Node::Number => Shape::Number,
            Node::Boolean => Shape::Boolean,
            Node::IntOrString => Shape::IntOrString,
            Node::Quantity => Shape::Quantity,
            Node::Any | Node::Definition(_) => Shape::Any,
        }
    }

    fn fields(&self) -> &[(Cow<'static, str>, Schema)] {
        match &self.resolved().node {
            Node::Struct(object) => &object.fields,
            _ => &[],
        }
    }

    /// The schema of a field of an object with known fields.
    pub fn property(&self, name: &str) -> Option<&Schema> {
        let fields = self.fields();
        let at = fields.binary_search_by(|(field, _)| (**field).cmp(name)).ok()?;
        fields.get(at).map(|(_, schema)| schema)
    }

    /// The known fields in name order; empty if the shape is not [`Shape::Object`].
    pub fn properties(&self) -> impl ExactSizeIterator<Item = (&str, &Schema)> {
        self.fields().iter().map(|(name, schema)| (&**name, schema))
    }

    /// The names of the fields that must be present.
    pub fn required(&self) -> impl Iterator<Item = &str> {
        let required: &[Cow<'static, str>] = match &self.resolved().node {
            Node::Struct(object) => &object.required,
            _ => &[],
        };
        required.iter().map(|name| &**name)
    }

    /// Whether a field must be present.
    pub fn is_required(&self, name: &str) -> bool {
        self.required().any(|required| required == name)
    }

    /// The schema of a list's elements.
    pub fn items(&self) -> Option<&Schema> {
        match self.shape() {
            Shape::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The schema of the values of a map with free keys.
    pub fn additional(&self) -> Option<&Schema> {
        match self.shape() {
            Shape::Map(values) => Some(values),
            _ => None,
        }
    }

    /// The name of the shared definition behind this node, such as `io.k8s.api.core.v1.PodSpec`.
    pub fn definition(&self) -> Option<&'static str> {
        match &self.node {
            Node::Definition(definition) => Some(definition.name),
            _ => None,
        }
    }

    /// The facts from the tables.
    fn known(&self) -> Option<&'static Fact> {
        match &self.facts {
            Facts::Known(fact) => Some(fact),
            Facts::Defined(_) => None,
        }
    }

    /// How server-side apply owns this list.
    pub fn list_type(&self) -> ListType {
        match &self.facts {
            Facts::Known(fact) => fact.list_type.unwrap_or_default(),
            Facts::Defined(defined) => defined.list_type,
        }
    }

    /// The key fields of the elements of a [`ListType::Map`] list.
    pub fn list_map_keys(&self) -> impl Iterator<Item = &str> + Clone {
        let (known, defined): (&'static [&'static str], &[String]) = match &self.facts {
            Facts::Known(fact) => (fact.list_map_keys, &[]),
            Facts::Defined(defined) => (&[], &defined.list_map_keys),
        };
        known.iter().copied().chain(defined.iter().map(String::as_str))
    }

    /// How server-side apply owns this map or object: the fact of the field, else the fact of its type.
    pub fn map_type(&self) -> MapType {
        match &self.facts {
            Facts::Known(fact) => fact.map_type.or(self.resolved().known().and_then(|fact| fact.map_type)).unwrap_or_default(),
            Facts::Defined(defined) => defined.map_type,
        }
    }

    /// The key field of the elements of this list in a strategic merge.
    pub fn merge_key(&self) -> Option<&'static str> {
        self.known().and_then(|fact| fact.merge_key)
    }

    /// How strategic merge treats this field.
    pub fn patch_strategy(&self) -> PatchStrategy {
        self.known().and_then(|fact| fact.strategy).unwrap_or_default()
    }

    /// The default in the schema, as JSON text (`"TCP"` with its quotes). Server-side apply needs it for omitted keys.
    /// Defaulting of objects does more than this.
    pub fn default_json(&self) -> Option<&str> {
        match &self.facts {
            Facts::Known(fact) => fact.default,
            Facts::Defined(defined) => defined.default.as_deref(),
        }
    }

    /// Whether unknown fields are kept.
    pub fn preserves_unknown_fields(&self) -> bool {
        matches!(&self.facts, Facts::Defined(defined) if defined.preserve_unknown_fields)
    }

    /// The allowed strings; empty if any string is allowed. For custom resources see [`crate::structural`].
    pub fn enumeration(&self) -> &'static [&'static str] {
        self.known().map(|fact| fact.enumeration).unwrap_or_default()
    }
}

/// The schema of a definition without a body. Callers never see it, because a root is returned only after all its
/// definitions are built.
static ANY: Schema = Schema::plain(Node::Any);
