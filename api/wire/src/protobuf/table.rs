//! The number, type and JSON name of each field of each message: `table.txt`, made by the example `protobuf_table` from
//! upstream's definitions and Go types. It is parsed when protobuf is first used, message by message. `tests/golden.rs`
//! compares the result with upstream's own examples.
//!
//! A line is a message: its path, after `=` every `apiVersion/kind` of which it is the message, then a word for each field:
//! `number:name:type`. A field without name is inlined: its fields are among its parent's. The name `[]` means that the message
//! as a whole is this list. Types are `s` text, `b` bytes, `i` integer, `t` boolean, `d` double, or a message's path; `*`
//! before a type is a list, `%` a map with text keys, `=` means that a zero differs from an absent value.

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
    /// The field's name in JSON.
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) kind: Kind,
    /// Whether a zero is kept.
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

/// Messages may contain themselves, so only the path is printed.
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

    /// The field with that JSON name, after the inlined fields that lead to it.
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
