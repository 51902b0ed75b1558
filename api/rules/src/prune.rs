//! Which fields a structural schema knows: upstream's `structuralpruning`, as a walk that tells of each
//! value what to do, without doing it.

use api_schema::{Additional, Structural};
use serde_json::Value;

/// Fields that every object has, also one that is embedded in another.
pub const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// What the schema says of a place: `known` is false below fields of which it says nothing.
#[derive(Clone, Copy)]
pub struct Place<'s> {
    /// The schema; `None` where nothing is known, so that objects have no fields.
    pub schema: Option<&'s Structural>,
    /// Whether unknown fields stay.
    keeps: bool,
    /// Whether this is a whole object with type and metadata.
    pub is_object: bool,
}

/// What becomes of a field.
pub enum Fate<'s> {
    /// It stays, and what it holds is looked at.
    Walk(Place<'s>),
    /// It stays as it is.
    Keep,
    /// It is not known.
    Prune,
}

impl<'s> Place<'s> {
    /// The whole object.
    pub fn root(schema: &'s Structural) -> Self {
        Self { is_object: true, ..Self::of(Some(schema)) }
    }

    fn of(schema: Option<&'s Structural>) -> Self {
        let (keeps, is_object) = schema.map_or((false, false), |schema| (schema.preserve_unknown_fields, schema.embedded_resource));
        Self { schema, keeps, is_object }
    }

    /// A field of an object here.
    pub fn field(&self, name: &str) -> Fate<'s> {
        let Some(schema) = self.schema else {
            return if self.keeps { Fate::Keep } else { Fate::Prune };
        };
        if self.is_object && META_FIELDS.contains(&name) {
            return Fate::Keep;
        }
        match (schema.properties.get(name), &schema.additional) {
            (Some(property), _) => Fate::Walk(Self::of(Some(property))),
            (None, Additional::Schema(further)) => Fate::Walk(Self::of(Some(further))),
            (None, Additional::Any) => Fate::Walk(Self::of(None)),
            (None, _) if self.keeps => Fate::Keep,
            (None, _) => Fate::Prune,
        }
    }

    /// An element of a list here.
    pub fn element(&self) -> Self {
        let items = self.schema.and_then(|schema| schema.items.as_deref());
        let place = Self::of(items);
        Self { keeps: place.keeps || self.keeps, ..place }
    }
}

/// Whether pruning would take something away from a value.
pub fn would_change(schema: &Structural, value: &Value) -> bool {
    changes(Place::of(Some(schema)), value)
}

fn changes(place: Place<'_>, value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(name, value)| match place.field(name) {
            Fate::Prune => true,
            Fate::Keep => false,
            Fate::Walk(inner) => changes(inner, value),
        }),
        Value::Array(list) => list.iter().any(|value| changes(place.element(), value)),
        _ => false,
    }
}
