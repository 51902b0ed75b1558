//! Warnings about fields that are stored although no part of skiff acts on them, from the table of [`api_model::acted`].
//!
//! The rows of such fields are compiled into a tree once. A write then costs one look-up for each such field of its kind,
//! and a message only for the fields that the object has.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use api_model::acted::{self, Acts};
use api_model::kind::Kind;
use serde_json::Value;

/// Most texts for one object.
const WARNINGS_MAX: usize = 16;

/// The fields of a kind without effect.
enum Lookup {
    /// No part acts on the kind.
    Whole(&'static str),
    /// No part acts on some fields.
    Fields(Node),
}

/// A node on the path to fields without effect, or such a field.
#[derive(Default)]
struct Node {
    /// The row of this field.
    row: Option<usize>,
    fields: Vec<(String, Node)>,
    /// The node of the elements of a list.
    elements: Option<Box<Node>>,
}

/// The path of the walk, as a linked list.
#[derive(Clone, Copy)]
enum At<'a> {
    Root,
    Field(&'a At<'a>, &'a str),
    Element(&'a At<'a>, usize),
}

/// The warnings for a new object, or for the new fields of a changed one.
pub fn unacted(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<String> {
    static KINDS: LazyLock<HashMap<(&str, &str), Lookup>> = LazyLock::new(compiled);
    if kind.custom.is_some() {
        return Vec::new();
    }
    match KINDS.get(&(kind.group.as_str(), kind.kind.as_str())) {
        None => Vec::new(),
        Some(Lookup::Whole(_)) if old.is_some_and(|old| asks_the_same(new, old)) => Vec::new(),
        Some(Lookup::Whole(sentence)) => vec![format!("skiff: {sentence}")],
        Some(Lookup::Fields(root)) => {
            let mut warnings = Vec::new();
            root.walk(new, old, At::Root, &mut warnings);
            warnings.into_iter().map(|(_, text)| text).collect()
        }
    }
}

fn compiled() -> HashMap<(&'static str, &'static str), Lookup> {
    let lookup = |row: &'static acted::Row| match row.acts {
        Acts::Nobody(sentence) => Some(Lookup::Whole(sentence)),
        Acts::Fields(_) => {
            let mut root = Node::default();
            for (number, (path, _)) in row.fields().filter(|(_, field)| field.acted_on_by.is_empty()).enumerate() {
                root.insert(&path, number);
            }
            (!root.fields.is_empty()).then_some(Lookup::Fields(root))
        }
    };
    acted::rows().filter_map(|row| Some(((row.group, row.kind), lookup(row)?))).collect()
}

/// Whether two versions of an object are equal except for metadata and status.
fn asks_the_same(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return false };
    let mut names = new.keys().chain(old.keys()).filter(|name| !matches!(name.as_str(), "metadata" | "status"));
    names.all(|name| new.get(name) == old.get(name))
}

/// Whether a value equals an absent one.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

impl Node {
    fn insert(&mut self, path: &str, number: usize) {
        let mut node = self;
        for step in path.split('.').filter(|step| !step.is_empty()) {
            let name = step.trim_end_matches("[]");
            let at = node.fields.iter().position(|(other, _)| other == name).unwrap_or_else(|| {
                node.fields.push((name.to_owned(), Self::default()));
                node.fields.len() - 1
            });
            let Some((_, next)) = node.fields.get_mut(at) else { return };
            node = if step.len() > name.len() { next.elements.get_or_insert_with(Box::default).as_mut() } else { next };
        }
        node.row = Some(number);
    }

    fn walk(&self, new: &Value, old: Option<&Value>, at: At<'_>, warnings: &mut Vec<(usize, String)>) {
        if warnings.len() >= WARNINGS_MAX {
            return;
        }
        if let Some(number) = self.row
            && !says_nothing(new)
            && old != Some(new)
            && !warnings.iter().any(|(other, _)| *other == number)
        {
            warnings.push((number, format!("skiff: {} is stored but nothing acts on it yet", at.text())));
        }
        for (name, field) in &self.fields {
            if let Some(value) = new.get(name) {
                field.walk(value, old.and_then(|old| old.get(name)), At::Field(&at, name), warnings);
            }
        }
        if let Some(elements) = &self.elements {
            for (index, value) in new.as_array().into_iter().flatten().enumerate() {
                elements.walk(value, old.and_then(|old| old.get(index)), At::Element(&at, index), warnings);
            }
        }
    }
}

impl At<'_> {
    fn text(self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write(self, text: &mut String) {
        match self {
            Self::Root => {}
            Self::Field(parent, name) => {
                parent.write(text);
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Self::Element(parent, index) => {
                parent.write(text);
                // Writing to a string does not fail.
                let _ = write!(text, "[{index}]");
            }
        }
    }
}

#[cfg(test)]
mod tests;
