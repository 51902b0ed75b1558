//! Which field of which message has which number and type, and what JSON calls it: `table.txt`, made by
//! the example `protobuf_table` from upstream's definitions and Go types. Read when protobuf is first
//! spoken, message by message. How it is held against upstream's own examples is told in `tests/golden.rs`.
//!
//! A line is a message: its path, behind `=` every `apiVersion/kind` that it is the whole of, then a word
//! a field: `number:name:type`. A field without name is inlined: its fields stand among its parent's.
//! The name `[]` says that the message as a whole is this list. Types are `s` text, `b` bytes, `i`
//! whole number, `t` truth, `d` double, or a message's path; `*` before a type is a list, `%` a map from
//! text, `=` that a zero is not the same as nothing.

use std::collections::HashMap;
use std::fmt;
use std::sync::{LazyLock, OnceLock};

use super::special::Special;

const TABLE: &str = include_str!("table.txt");

/// A message and its fields.
pub(super) struct Message {
    pub(super) id: &'static str,
    text: &'static str,
    fields: OnceLock<Box<[Field]>>,
    flat: OnceLock<Box<[&'static Field]>>,
}

/// One field of a message.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) tag: u32,
    /// What JSON calls it.
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) kind: Kind,
    /// Whether a zero is kept when it comes.
    pub(super) keeps_zero: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    One,
    List,
    Map,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Text,
    Bytes,
    Integer,
    Truth,
    Double,
    Message(&'static Message),
    /// A message that JSON writes in a way of its own.
    Special(Special),
}

struct Table {
    by_id: HashMap<&'static str, Message>,
    /// By `apiVersion/kind`.
    roots: HashMap<&'static str, &'static str>,
}

static MESSAGES: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table { by_id: HashMap::new(), roots: HashMap::new() };
    for line in TABLE.lines() {
        let (head, text) = line.split_once(' ').unwrap_or((line, ""));
        let (id, root) = head.split_once('=').unwrap_or((head, ""));
        table.by_id.insert(id, Message { id, text, fields: OnceLock::new(), flat: OnceLock::new() });
        for root in root.split(',').filter(|root| !root.is_empty()) {
            table.roots.insert(root, id);
        }
    }
    table
});

/// The message of that path.
pub(super) fn message(id: &str) -> Option<&'static Message> {
    MESSAGES.by_id.get(id)
}

/// The message of a kind.
pub(super) fn root(api_version: &str, kind: &str) -> Option<&'static Message> {
    // Options are of every group.
    let api_version = if kind == "DeleteOptions" { "v1" } else { api_version };
    message(MESSAGES.roots.get(format!("{api_version}/{kind}").as_str())?)
}

/// Messages may hold themselves: the path says enough.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

impl Message {
    pub(super) fn fields(&'static self) -> &'static [Field] {
        self.fields.get_or_init(|| self.text.split_whitespace().filter_map(Field::parse).collect())
    }

    /// The fields in the order of upstream's Go type, those of inlined messages at their place.
    pub(super) fn flat(&'static self) -> &'static [&'static Field] {
        self.flat.get_or_init(|| {
            let fields = self.fields().iter().flat_map(|field| match field.kind {
                Kind::Message(inner) if field.is_inlined() => inner.flat().to_vec(),
                _ => vec![field],
            });
            fields.collect()
        })
    }

    /// The field of that number.
    pub(super) fn numbered(&'static self, tag: u64) -> Option<&'static Field> {
        self.fields().iter().find(|field| u64::from(field.tag) == tag)
    }

    /// The field that JSON calls so, behind those through which it is reached: the inlined ones.
    pub(super) fn named(&'static self, name: &str) -> Option<(Vec<&'static Field>, &'static Field)> {
        if let Some(field) = self.fields().iter().find(|field| field.name == name) {
            return Some((Vec::new(), field));
        }
        self.fields().iter().filter(|field| field.is_inlined()).find_map(|outer| {
            let Kind::Message(inner) = outer.kind else { return None };
            let (mut through, field) = inner.named(name)?;
            through.insert(0, outer);
            Some((through, field))
        })
    }

    /// The list that this message is in JSON, if it is one.
    pub(super) fn list(&'static self) -> Option<&'static Field> {
        self.fields().first().filter(|field| field.name == "[]")
    }
}

impl Field {
    fn parse(text: &'static str) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        let (tag, name, kind) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
        let (keeps_zero, kind) = kind.strip_prefix('=').map_or((false, kind), |kind| (true, kind));
        let (shape, kind) = match (kind.strip_prefix('*'), kind.strip_prefix('%')) {
            (Some(kind), _) => (Shape::List, kind),
            (_, Some(kind)) => (Shape::Map, kind),
            _ => (Shape::One, kind),
        };
        let kind = match kind {
            "s" => Kind::Text,
            "b" => Kind::Bytes,
            "i" => Kind::Integer,
            "t" => Kind::Truth,
            "d" => Kind::Double,
            id => match Special::of(id) {
                Some(special) => Kind::Special(special),
                None => Kind::Message(message(id)?),
            },
        };
        Some(Self { tag, name, shape, kind, keeps_zero })
    }

    /// Whether the fields of this message stand among its parent's in JSON.
    pub(super) fn is_inlined(&self) -> bool {
        self.name.is_empty()
    }
}

#[cfg(test)]
mod tests;
