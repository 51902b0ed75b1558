//! The tree of a parsed expression, independent of the parser's types.

use std::sync::Arc;

use regex::Regex;

/// A node of an expression.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its offset in the text, in bytes.
    pub(crate) at: usize,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Literal(Literal),
    Ident(Box<str>),
    /// `operand.field`, or with `is_test` `has(operand.field)`.
    Select {
        operand: Box<Node>,
        field: Box<str>,
        is_test: bool,
    },
    /// A function; the target of a member call is the first argument.
    Call {
        function: Box<str>,
        is_member: bool,
        args: Vec<Node>,
        /// The literal pattern, compiled once with the expression.
        pattern: Option<Box<Regex>>,
    },
    List(Vec<Entry>),
    Map(Vec<(Node, Entry)>),
    Message {
        name: Box<str>,
        fields: Vec<(Box<str>, Entry)>,
    },
    Fold(Box<Fold>),
}

/// An element or value. An optional one (`?x`) is omitted when it is absent.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) value: Node,
    pub(crate) is_optional: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// A fold: the expansion of macros such as `all` and `map`.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) range: Node,
    pub(crate) variable: Arc<str>,
    pub(crate) second: Option<Arc<str>>,
    pub(crate) accumulator: Arc<str>,
    pub(crate) start: Node,
    pub(crate) condition: Node,
    pub(crate) step: Node,
    pub(crate) result: Node,
}

impl Node {
    /// The direct children.
    pub(crate) fn children(&self) -> Vec<&Self> {
        match &self.kind {
            Kind::Literal(_) | Kind::Ident(_) => Vec::new(),
            Kind::Select { operand, .. } => vec![operand],
            Kind::Call { args, .. } => args.iter().collect(),
            Kind::List(entries) => entries.iter().map(|entry| &entry.value).collect(),
            Kind::Map(entries) => entries.iter().flat_map(|(key, entry)| [key, &entry.value]).collect(),
            Kind::Message { fields, .. } => fields.iter().map(|(_, entry)| &entry.value).collect(),
            Kind::Fold(fold) => vec![&fold.range, &fold.start, &fold.condition, &fold.step, &fold.result],
        }
    }

    /// Whether this node or a descendant matches.
    pub(crate) fn any(&self, is: &mut impl FnMut(&Self) -> bool) -> bool {
        is(self) || self.children().into_iter().any(|child| child.any(is))
    }

    /// The qualified name `a.b.c`, if the node is one.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.to_string()),
            Kind::Select { operand, field, is_test: false } => Some(format!("{}.{field}", operand.qualified_name()?)),
            _ => None,
        }
    }
}
