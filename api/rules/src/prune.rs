//! Which fields a structural schema knows: upstream's `structuralpruning`. The walk returns what to do with each field and
//! changes nothing.

use api_schema::{Additional, Structural};
use serde_json::Value;

/// Fields that every object has, embedded objects too.
pub const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// A node of a schema during the walk beside a value.
#[derive(Clone, Copy)]
pub struct SchemaNode<'s> {
    /// The schema; `None` where nothing is known of the value: an object has no known fields.
    pub schema: Option<&'s Structural>,
    /// Whether unknown fields are kept.
    keeps: bool,
    /// Whether the value is a whole object with `apiVersion`, `kind` and `metadata`.
    pub is_object: bool,
}

/// What pruning does with a field.
pub enum FieldAction<'s> {
    /// Keeps the field and prunes its value.
    Walk(SchemaNode<'s>),
    /// Keeps the field and its value.
    Keep,
    /// Removes the field: the schema does not know it.
    Prune,
}

impl<'s> SchemaNode<'s> {
    /// The node of the whole object.
    pub fn root(schema: &'s Structural) -> Self {
        Self { is_object: true, ..Self::new(Some(schema)) }
    }

    fn new(schema: Option<&'s Structural>) -> Self {
        let (keeps, is_object) = schema.map_or((false, false), |schema| (schema.preserve_unknown_fields, schema.embedded_resource));
        Self { schema, keeps, is_object }
    }

    /// What pruning does with a field of an object at this node.
    pub fn field(&self, name: &str) -> FieldAction<'s> {
        let Some(schema) = self.schema else {
            return if self.keeps { FieldAction::Keep } else { FieldAction::Prune };
        };
        if self.is_object && META_FIELDS.contains(&name) {
            return FieldAction::Keep;
        }
        match (schema.properties.get(name), &schema.additional) {
            (Some(property), _) => FieldAction::Walk(Self::new(Some(property))),
            (None, Additional::Schema(further)) => FieldAction::Walk(Self::new(Some(further))),
            (None, Additional::Any) => FieldAction::Walk(Self::new(None)),
            (None, _) if self.keeps => FieldAction::Keep,
            (None, _) => FieldAction::Prune,
        }
    }

    /// The node of an element of a list.
    pub fn element(&self) -> Self {
        let items = self.schema.and_then(|schema| schema.items.as_deref());
        let node = Self::new(items);
        Self { keeps: node.keeps || self.keeps, ..node }
    }
}

/// Whether pruning would remove something from a value.
pub fn would_change(schema: &Structural, value: &Value) -> bool {
    changes(SchemaNode::new(Some(schema)), value)
}

fn changes(node: SchemaNode<'_>, value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(name, value)| match node.field(name) {
            FieldAction::Prune => true,
            FieldAction::Keep => false,
            FieldAction::Walk(inner) => changes(inner, value),
        }),
        Value::Array(list) => list.iter().any(|value| changes(node.element(), value)),
        _ => false,
    }
}
