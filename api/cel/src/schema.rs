//! The schema as CEL sees it: the types of values, and the reading of JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_schema::{Additional, Structural};

use crate::names::escape;
use crate::types::{ObjectType, Type};

/// How JSON becomes values.
#[derive(Clone, Copy, Debug)]
pub enum Shape<'s> {
    /// Without a schema: fields keep their names, and whole numbers are `int`.
    Free,
    /// By a schema: fields have escaped names, unknown fields are invisible, and numbers and texts have the types of
    /// the schema.
    Schema(&'s Structural),
    /// By the schema of a whole object, which also has a type and metadata.
    Whole(&'s Structural),
}

/// Fields of every object, with any schema.
const TYPE_FIELDS: [&str; 2] = ["apiVersion", "kind"];
const METADATA: &str = "metadata";
/// The visible fields of metadata.
const META_FIELDS: [&str; 2] = ["name", "generateName"];

impl<'s> Shape<'s> {
    /// The shape of a field, by the field's own name; `None` if expressions cannot see it.
    pub(crate) fn field(self, name: &str) -> Option<Self> {
        match self {
            Self::Free => Some(Self::Free),
            Self::Whole(_) if TYPE_FIELDS.contains(&name) || name == METADATA => Some(Self::Free),
            Self::Schema(schema) if schema.embedded_resource && (TYPE_FIELDS.contains(&name) || name == METADATA) => Some(Self::Free),
            Self::Schema(schema) | Self::Whole(schema) => schema.field(name).map(Self::Schema),
        }
    }

    pub(crate) fn element(self) -> Self {
        match self {
            Self::Free => Self::Free,
            Self::Schema(schema) | Self::Whole(schema) => schema.items.as_deref().map_or(Self::Free, Self::Schema),
        }
    }

    pub(crate) fn schema(self) -> Option<&'s Structural> {
        match self {
            Self::Free => None,
            Self::Schema(schema) | Self::Whole(schema) => Some(schema),
        }
    }

    /// Whether fields have escaped names.
    pub(crate) fn escapes(self) -> bool {
        self.schema().is_some_and(|schema| !matches!(schema.additional, Additional::Schema(_)))
    }
}

/// The type of values of a schema; `None` if expressions cannot see the values, because their type is unknown.
pub fn type_of(schema: &Structural, is_root: bool) -> Option<Type> {
    named_type_of(schema, is_root, "selfType")
}

fn named_type_of(schema: &Structural, is_root: bool, name: &str) -> Option<Type> {
    if schema.int_or_string {
        return Some(Type::Dyn);
    }
    Some(match schema.kind.as_str() {
        "array" => Type::list(named_type_of(schema.items.as_deref()?, false, &format!("{name}.@idx"))?),
        "object" => match &schema.additional {
            Additional::Schema(values) => Type::map(named_type_of(values, false, &format!("{name}.@elem"))?),
            _ => object(schema, is_root, name),
        },
        kind => plain(kind, &schema.format)?,
    })
}

/// The type of values without parts, by type and format of the schema.
pub(crate) fn plain(kind: &str, format: &str) -> Option<Type> {
    Some(match kind {
        "boolean" => Type::Bool,
        "integer" => Type::Int,
        "number" => Type::Double,
        "string" => match format {
            "byte" => Type::Bytes,
            "duration" => Type::Duration,
            "date" | "date-time" => Type::Timestamp,
            _ => Type::String,
        },
        _ => return None,
    })
}

fn object(schema: &Structural, is_root: bool, name: &str) -> Type {
    let typed = |(field, schema): (&String, &Structural)| Some((escape(field), named_type_of(schema, false, &format!("{name}.{field}"))?));
    let mut fields: BTreeMap<String, Type> = schema.properties.iter().filter_map(typed).collect();
    if is_root || schema.embedded_resource {
        fields.extend(TYPE_FIELDS.map(|field| (field.to_owned(), Type::String)));
        let metadata = Type::object(&format!("{name}.{METADATA}"), META_FIELDS.map(|field| (field, Type::String)));
        fields.insert(METADATA.to_owned(), metadata);
    }
    Type::Object(Arc::new(ObjectType { name: name.to_owned(), fields, is_open: false }))
}
