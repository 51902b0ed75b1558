//! What of an object is stored although nothing acts on it: told to whoever writes it, by the table of
//! [`api_model::acted`].
//!
//! The rows that nobody acts on are made into a tree once. A write then costs one look-up for each of them that its
//! object could have, and a text only for those that it has.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use api_model::acted::{self, Acts, Field};
use api_model::kind::Kind;
use serde_json::Value;

/// Most texts for one object.
const WARNINGS_MAX: usize = 16;

/// What is looked for in objects of one kind.
enum Lookup {
    /// Nobody acts on the kind.
    Whole(&'static str),
    /// Nobody acts on some fields.
    Fields(Node),
}

/// A place on the way to fields that nobody acts on, or one of them.
#[derive(Default)]
struct Node {
    /// The number of the row that ends here, and the values that ask for nothing.
    row: Option<(usize, Vec<Value>)>,
    fields: Vec<(String, Node)>,
    /// Of each element of a list.
    elements: Option<Box<Node>>,
}

/// Where the walk is, as a list from the inside out.
#[derive(Clone, Copy)]
enum At<'a> {
    Root,
    Field(&'a At<'a>, &'a str),
    Element(&'a At<'a>, usize),
}

/// The warnings for a new object, or for a change from `old`: only what is new in it counts.
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
            let mut found = Vec::new();
            root.walk(new, old, At::Root, &mut found);
            found.into_iter().map(|(_, text)| text).collect()
        }
    }
}

fn compiled() -> HashMap<(&'static str, &'static str), Lookup> {
    let lookup = |row: &'static acted::Row| match row.acts {
        Acts::Nobody(sentence) => Some(Lookup::Whole(sentence)),
        Acts::Fields(_) => {
            let mut root = Node::default();
            for (number, (path, field)) in row.fields().filter(|(_, field)| field.acted_on_by.is_empty()).enumerate() {
                root.insert(&path, number, field);
            }
            (!root.fields.is_empty()).then_some(Lookup::Fields(root))
        }
    };
    acted::rows().filter_map(|row| Some(((row.group, row.kind), lookup(row)?))).collect()
}

/// Whether two versions of an object ask for the same: all but metadata and status is equal.
fn asks_the_same(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return false };
    let mut names = new.keys().chain(old.keys()).filter(|name| !matches!(name.as_str(), "metadata" | "status"));
    names.all(|name| new.get(name) == old.get(name))
}

/// What is as good as not being there.
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
    fn insert(&mut self, path: &str, number: usize, field: &Field) {
        let mut node = self;
        for step in path.split('.').filter(|step| !step.is_empty()) {
            let name = step.trim_end_matches("[]");
            let at = node.fields.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
                node.fields.push((name.to_owned(), Self::default()));
                node.fields.len() - 1
            });
            let Some((_, next)) = node.fields.get_mut(at) else { return };
            node = if step.len() > name.len() { next.elements.get_or_insert_with(Box::default).as_mut() } else { next };
        }
        node.row = Some((number, field.moot.iter().filter_map(|text| serde_json::from_str(text).ok()).collect()));
    }

    fn walk(&self, new: &Value, old: Option<&Value>, at: At<'_>, found: &mut Vec<(usize, String)>) {
        if found.len() >= WARNINGS_MAX {
            return;
        }
        if let Some((number, moot)) = &self.row
            && !says_nothing(new)
            && old != Some(new)
            && !moot.contains(new)
            && !found.iter().any(|(other, _)| other == number)
        {
            found.push((*number, format!("skiff: {} is stored but nothing acts on it yet", at.text())));
        }
        for (name, field) in &self.fields {
            if let Some(value) = new.get(name) {
                field.walk(value, old.and_then(|old| old.get(name)), At::Field(&at, name), found);
            }
        }
        if let Some(elements) = &self.elements {
            for (index, value) in new.as_array().into_iter().flatten().enumerate() {
                elements.walk(value, old.and_then(|old| old.get(index)), At::Element(&at, index), found);
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
