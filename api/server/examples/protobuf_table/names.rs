//! What JSON calls the fields of messages, told by walking messages and schemas side by side.

use std::collections::{BTreeMap, BTreeSet};

use api_schema::Schema;

use crate::pointers::is_pointer;
use crate::source::{Field, Messages};

/// Names that no schema of ours tells.
const OTHERS: &[(&str, &str)] = &[("serverAddressByClientCidRs", "serverAddressByClientCIDRs"), ("clientCidr", "clientCIDR")];
/// A list that no schema of ours tells.
const VERBS: &str = "apimachinery.pkg.apis.meta.v1.Verbs";
/// Messages that JSON writes in a way of its own: their fields are none of its.
const SPECIAL: &[&str] = &[
    ".Quantity",
    ".IntOrString",
    ".Time",
    ".MicroTime",
    ".RawExtension",
    ".FieldsV1",
    ".v1.JSON",
    ".JSONSchemaPropsOrBool",
    ".JSONSchemaPropsOrArray",
    ".JSONSchemaPropsOrStringArray",
];

/// Messages inlined in one another: a rule in a rule with operations in one with a name.
const INLINED_DEPTH_MAX: usize = 2;

fn is_special(id: &str) -> bool {
    SPECIAL.iter().any(|special| id.ends_with(special))
}

/// What was learned.
#[derive(Default)]
pub struct Names {
    walked: BTreeSet<String>,
    inlined: BTreeSet<String>,
    /// By message and number: the name, and whether a zero is kept.
    known: BTreeMap<(String, u32), (String, bool)>,
    /// By message: fields of JSON that it has not.
    unnumbered: BTreeMap<String, BTreeSet<String>>,
}

impl Names {
    /// What JSON calls a field, empty where it is inlined; none where JSON has no such field.
    pub fn of<'a>(&'a self, id: &str, field: &'a Field) -> Option<(&'a str, bool)> {
        if let Some((name, keeps_zero)) = self.known.get(&(id.to_owned(), field.tag)) {
            return Some((name, *keeps_zero));
        }
        if id == VERBS {
            return Some(("[]", true));
        }
        if self.walked.contains(id) || self.inlined.contains(id) {
            return None;
        }
        let other = OTHERS.iter().find(|(camel, _)| *camel == field.camel).map(|(_, name)| *name);
        let name = other.unwrap_or(&field.camel);
        Some((name, is_pointer(id, name)))
    }

    pub fn unnumbered(&self, id: &str) -> impl Iterator<Item = &str> {
        self.unnumbered.get(id).into_iter().flatten().map(String::as_str)
    }

    /// Learns the names in a message from the schema of the same type.
    pub fn walk(&mut self, messages: &Messages, id: &str, schema: &Schema) {
        if is_special(id) || !self.walked.insert(id.to_owned()) {
            return;
        }
        let mut found = BTreeSet::from(["apiVersion".to_owned(), "kind".to_owned()]);
        self.fields(messages, id, schema, &mut found, INLINED_DEPTH_MAX);
        let missing = schema.properties().map(|(name, _)| name.to_owned()).filter(|name| !found.contains(name));
        let missing: BTreeSet<String> = missing.collect();
        if !missing.is_empty() {
            self.unnumbered.insert(id.to_owned(), missing);
        }
    }

    /// The same, of a message whose fields may be some among others.
    fn fields(&mut self, messages: &Messages, id: &str, schema: &Schema, found: &mut BTreeSet<String>, depth: usize) {
        for field in messages.get(id).into_iter().flatten() {
            match (property(schema, &field.camel), field.message()) {
                (Some((name, inner)), message) => {
                    found.insert(name.to_owned());
                    let keeps_zero = is_pointer(id, name) || schema.is_required(name);
                    self.known.insert((id.to_owned(), field.tag), (name.to_owned(), keeps_zero));
                    if let Some(message) = message {
                        self.message(messages, message, element(field, inner));
                    }
                }
                (None, Some(message)) if field.is_one() && depth > 0 && !is_special(message) => {
                    let before = found.len();
                    self.fields(messages, message, schema, found, depth - 1);
                    if found.len() > before {
                        self.known.insert((id.to_owned(), field.tag), (String::new(), false));
                        self.inlined.insert(message.to_owned());
                    }
                }
                _ => {}
            }
        }
    }

    /// A message in a field: one that is a list in JSON has one field, its items.
    fn message(&mut self, messages: &Messages, id: &str, schema: &Schema) {
        let Some(items) = schema.items() else { return self.walk(messages, id, schema) };
        for field in messages.get(id).into_iter().flatten().filter(|field| field.camel == "items") {
            self.walked.insert(id.to_owned());
            self.known.insert((id.to_owned(), field.tag), ("[]".to_owned(), true));
            if let Some(message) = field.message() {
                self.walk(messages, message, items);
            }
        }
    }
}

/// The schema of one value of a field.
fn element<'a>(field: &Field, schema: &'a Schema) -> &'a Schema {
    match field.kind.as_bytes().first() {
        Some(b'*') => schema.items().unwrap_or(schema),
        Some(b'%') => schema.additional().unwrap_or(schema),
        _ => schema,
    }
}

/// The JSON field of that name, or of the same letters and digits.
fn property<'a>(schema: &'a Schema, camel: &str) -> Option<(&'a str, &'a Schema)> {
    let exact = schema.properties().find(|(name, _)| *name == camel);
    exact.or_else(|| schema.properties().find(|(name, _)| letters(name).eq(letters(camel))))
}

/// What of a name both sides spell alike: `x-kubernetes-list-type` is `xKubernetesListType`, `$ref` is `ref`.
fn letters(name: &str) -> impl Iterator<Item = char> {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase())
}
