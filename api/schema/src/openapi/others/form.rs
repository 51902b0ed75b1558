//! The form of an OpenAPI v2 document: where references are, and which types Go clients expect. The walk skips other
//! fields, so a `$ref` in an example, a default or an extension is no reference.

use serde_json::{Map, Value};

/// A type of object in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Entries by path.
    Paths,
    PathItem,
    Operation,
    /// Entries by status code, and `default`.
    Responses,
    Response,
    /// Entries by name, as for headers.
    Parameters,
    Parameter,
    /// Entries by name.
    Schemas,
    Schema,
}

/// The type of a field of such an object.
#[derive(Clone, Copy, Debug)]
enum FieldType {
    One(Form),
    List(Form),
    OneOrList(Form),
    OneOrFlag(Form),
    Text,
    Texts,
    TextOrTexts,
    Values,
}

impl Form {
    /// The type of a field; `None` if any value is allowed.
    fn field_type(self, name: &str) -> Option<FieldType> {
        Some(match (self, name) {
            (Self::Schemas, _) => FieldType::One(Self::Schema),
            (Self::Parameters, _) => FieldType::One(Self::Parameter),
            (_, name) if name.starts_with("x-") => return None,
            (Self::Paths, _) => FieldType::One(Self::PathItem),
            (Self::Responses, _) => FieldType::One(Self::Response),
            (Self::PathItem, "get" | "put" | "post" | "delete" | "options" | "head" | "patch") => FieldType::One(Self::Operation),
            (Self::PathItem | Self::Operation, "parameters") => FieldType::List(Self::Parameter),
            (Self::Operation, "responses") => FieldType::One(Self::Responses),
            (Self::Operation, "tags" | "consumes" | "produces" | "schemes") | (Self::Schema, "required") => FieldType::Texts,
            (Self::Response | Self::Parameter, "schema") => FieldType::One(Self::Schema),
            (Self::Response, "headers") => FieldType::One(Self::Parameters),
            (Self::Parameter, "items") => FieldType::One(Self::Parameter),
            (Self::Parameter, "type") => FieldType::Text,
            (Self::Schema, "type") => FieldType::TextOrTexts,
            (Self::Schema | Self::Parameter, "enum") => FieldType::Values,
            (Self::Schema, "properties" | "patternProperties" | "definitions") => FieldType::One(Self::Schemas),
            (Self::Schema, "allOf" | "anyOf" | "oneOf") => FieldType::List(Self::Schema),
            (Self::Schema, "not") => FieldType::One(Self::Schema),
            (Self::Schema, "items") => FieldType::OneOrList(Self::Schema),
            (Self::Schema, "additionalProperties" | "additionalItems") => FieldType::OneOrFlag(Self::Schema),
            (_, "$ref" | "description" | "format" | "in" | "name" | "operationId" | "pattern" | "summary" | "title") => FieldType::Text,
            _ => return None,
        })
    }

    /// The name of the first field with a value of a wrong type, in this object or below.
    pub(super) fn misfit(self, fields: &Map<String, Value>) -> Option<&str> {
        fields.iter().find_map(|(name, value)| match self.field_type(name) {
            Some(field_type) if !field_type.is(value) => Some(name.as_str()),
            _ => self.below(name, value).find_map(|(form, fields)| form.misfit(fields)),
        })
    }

    /// The targets of the references in this object and below.
    pub(super) fn references<'v>(self, fields: &'v Map<String, Value>, found: &mut Vec<&'v str>) {
        found.extend(fields.get("$ref").filter(|_| self.refers()).and_then(Value::as_str));
        let below = fields.iter().flat_map(|(name, value)| self.below(name, value));
        below.for_each(|(form, fields)| form.references(fields, found));
    }

    /// Replaces the targets of references for which `new` returns another one.
    pub(super) fn relink(self, fields: &mut Map<String, Value>, new: &impl Fn(&str) -> Option<String>) {
        for (name, value) in fields {
            match (self.field_type(name).and_then(FieldType::form), value) {
                (Some(form), Value::Object(fields)) => form.relink(fields, new),
                (Some(form), Value::Array(items)) => {
                    items.iter_mut().filter_map(Value::as_object_mut).for_each(|fields| form.relink(fields, new));
                }
                (_, Value::String(target)) if name == "$ref" && self.refers() => {
                    if let Some(new) = new(target) {
                        *target = new;
                    }
                }
                _ => {}
            }
        }
    }

    fn refers(self) -> bool {
        matches!(self, Self::Schema | Self::Parameter | Self::Response)
    }

    /// The objects of a field.
    fn below<'v>(self, name: &str, value: &'v Value) -> impl Iterator<Item = (Self, &'v Map<String, Value>)> + use<'v> {
        let form = self.field_type(name).and_then(FieldType::form);
        let all = match value {
            Value::Array(items) => items.as_slice(),
            one => std::slice::from_ref(one),
        };
        form.into_iter().flat_map(move |form| all.iter().filter_map(Value::as_object).map(move |fields| (form, fields)))
    }
}

impl FieldType {
    fn form(self) -> Option<Form> {
        match self {
            Self::One(form) | Self::List(form) | Self::OneOrList(form) | Self::OneOrFlag(form) => Some(form),
            Self::Text | Self::Texts | Self::TextOrTexts | Self::Values => None,
        }
    }

    fn is(self, value: &Value) -> bool {
        let all = |is: fn(&Value) -> bool| value.as_array().is_some_and(|items| items.iter().all(is));
        match self {
            Self::One(_) => value.is_object(),
            Self::List(_) => all(Value::is_object),
            Self::OneOrList(_) => value.is_object() || all(Value::is_object),
            Self::OneOrFlag(_) => value.is_object() || value.is_boolean(),
            Self::Text => value.is_string(),
            Self::Texts => all(Value::is_string),
            Self::TextOrTexts => value.is_string() || all(Value::is_string),
            Self::Values => value.is_array(),
        }
    }
}
