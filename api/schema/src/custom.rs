//! The tree of a custom resource's schema: the same [`Schema`] as that of a built-in kind, made from the
//! [`Structural`] schema of its definition. Both are parsed once for each version of a definition and stay with its kind.

use std::borrow::Cow;

use api_model::kind::{Custom, Kind, Slot};

use crate::builtin;
use crate::schema::{Defined, Facts, Format, Node, Schema, Struct};
use crate::strategy::{ListType, MapType};
use crate::structural::{Additional, Structural};

/// The parsed schema of a custom kind, and its tree.
struct Parsed {
    structural: Structural,
    tree: Schema,
}

/// The parsed schema of a custom kind; `None` for built-in ones.
pub fn structural(kind: &Kind) -> Option<&Structural> {
    parsed(kind.custom.as_deref()?).map(|parsed| &parsed.structural)
}

/// The schema of a kind. For a built-in kind it comes from the type, for a custom kind from the definition.
pub fn of_kind(kind: &Kind) -> Option<&Schema> {
    match &kind.custom {
        Some(custom) => parsed(custom).map(|parsed| &parsed.tree),
        None => builtin::of_gvk(&kind.group, &kind.version, &kind.kind),
    }
}

fn parsed(custom: &Custom) -> Option<&Parsed> {
    custom.cached(Slot::Schema, || {
        let mut structural = Structural::parse(&custom.schema);
        structural.preserve_unknown_fields |= custom.schema.is_null();
        let tree = Schema::of_structural(&structural, true);
        Parsed { structural, tree }
    })
}

impl Schema {
    /// The tree of a custom resource's schema. A `root`, like an embedded resource, always has metadata.
    pub(crate) fn of_structural(schema: &Structural, root: bool) -> Self {
        let list_type = match schema.list_type.as_str() {
            "map" => ListType::Map,
            "set" => ListType::Set,
            _ => ListType::Atomic,
        };
        let defined = Defined {
            list_type,
            list_map_keys: schema.list_map_keys.clone(),
            map_type: if schema.map_type == "atomic" { MapType::Atomic } else { MapType::Granular },
            default: schema.default.as_ref().map(ToString::to_string),
            preserve_unknown_fields: schema.preserve_unknown_fields,
        };
        Self { node: Node::of_structural(schema, root || schema.embedded_resource), facts: Facts::Defined(Box::new(defined)) }
    }
}

impl Node {
    fn of_structural(schema: &Structural, has_metadata: bool) -> Self {
        match schema.kind.as_str() {
            _ if schema.int_or_string => Self::IntOrString,
            "array" => Self::Array(Box::new(match &schema.items {
                Some(items) => Schema::of_structural(items, false),
                None => Schema::plain(Self::Any),
            })),
            "string" => Self::String(Format::None),
            "integer" => Self::Integer(if schema.format == "int32" { Format::Int32 } else { Format::Int64 }),
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            "object" => match &schema.additional {
                Additional::Schema(values) => Self::Map(Box::new(Schema::of_structural(values, false))),
                Additional::Any => Self::Map(Box::new(Schema::plain(Self::Any))),
                _ if schema.properties.is_empty() && !has_metadata => Self::Any,
                _ => Self::Struct(Box::new(Struct::of_structural(schema, has_metadata))),
            },
            _ => Self::Any,
        }
    }
}

impl Struct {
    fn of_structural(schema: &Structural, has_metadata: bool) -> Self {
        let own = |name: &str| has_metadata && matches!(name, "apiVersion" | "kind" | "metadata");
        let mut fields: Vec<(Cow<'static, str>, Schema)> = schema
            .properties
            .iter()
            .filter(|(name, _)| !own(name))
            .map(|(name, field)| (Cow::Owned(name.clone()), Schema::of_structural(field, false)))
            .collect();
        if has_metadata {
            fields.push(("apiVersion".into(), Schema::plain(Node::String(Format::None))));
            fields.push(("kind".into(), Schema::plain(Node::String(Format::None))));
            fields.extend(builtin::metadata().map(|metadata| ("metadata".into(), metadata)));
        }
        fields.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Self { fields: fields.into(), required: schema.required.iter().cloned().map(Cow::Owned).collect() }
    }
}
