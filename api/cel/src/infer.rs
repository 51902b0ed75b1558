//! Infers the schemas of parts of an expression: fields of `self` and `oldSelf`, elements of lists, values of maps. A part
//! without a schema can be any value.

use std::borrow::Cow;

use api_schema::{Additional, Structural};

use crate::names::unescape;
use crate::node::{Fold, Kind, Literal, Node};

/// Variables with the schemas and sizes of their values, innermost last.
#[derive(Clone, Default)]
pub(crate) struct Variables<'s> {
    known: Vec<(&'s str, Inferred<'s>)>,
}

/// The schema and the size of a value, if they are known.
#[derive(Clone, Copy, Default)]
pub(crate) struct Inferred<'s> {
    pub(crate) schema: Option<&'s Structural>,
    /// The maximum size, if it does not come from the schema.
    pub(crate) size: Option<u64>,
}

impl<'s> Variables<'s> {
    /// The variables `self` and `oldSelf`.
    pub(crate) fn new(schema: &'s Structural) -> Self {
        let known = Inferred { schema: Some(schema), size: None };
        Self { known: vec![("self", known), ("oldSelf", known)] }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Inferred<'s>> {
        self.known.iter().rev().find(|(known, _)| *known == name).map(|(_, known)| *known)
    }

    pub(crate) fn with(&self, more: impl IntoIterator<Item = (&'s str, Inferred<'s>)>) -> Self {
        let mut inner = self.clone();
        inner.known.extend(more);
        inner
    }

    /// The variables in the steps of a fold over a range.
    pub(crate) fn within(&self, fold: &'s Fold, range: Inferred<'s>, start: Inferred<'s>) -> Self {
        let element = range.schema.and_then(element);
        let is_list = range.schema.is_some_and(|range| range.kind == "array");
        // The parts of a split text are no longer than the text; the sizes of other elements are unknown.
        let values = Inferred { schema: element, size: range.size.filter(|_| element.is_none()) };
        let keys = Inferred::default();
        let mut inner = self.with([(&*fold.accumulator, start)]);
        match &fold.second {
            Some(second) => inner.known.extend([(&*fold.variable, keys), (&**second, values)]),
            None if is_list || range.schema.is_none() => inner.known.push((&*fold.variable, values)),
            // Over a map, a single variable is the key.
            None => inner.known.push((&*fold.variable, keys)),
        }
        inner
    }

    /// The schema of the result of an expression, if it is known.
    pub(crate) fn schema(&self, node: &Node) -> Option<&'s Structural> {
        match &node.kind {
            Kind::Ident(name) => self.get(name)?.schema,
            Kind::Select { operand, field, is_test: false } => field_of(self.schema(operand)?, field),
            Kind::Call { function, args, .. } => match (&**function, args.as_slice()) {
                ("_[_]" | "_[?_]", [operand, _]) => element(self.schema(operand)?),
                ("_?._", [operand, Node { kind: Kind::Literal(Literal::String(name)), .. }]) => field_of(self.schema(operand)?, name),
                ("value" | "orValue" | "or" | "optional.of", [operand, ..]) => self.schema(operand),
                _ => None,
            },
            _ => None,
        }
    }
}

fn field_of<'s>(schema: &'s Structural, name: &str) -> Option<&'s Structural> {
    let name = if name.contains("__") { Cow::Owned(unescape(name)) } else { Cow::Borrowed(name) };
    schema.field(&name)
}

/// The schema of a list's elements or of a map's values.
fn element(schema: &Structural) -> Option<&Structural> {
    match &schema.additional {
        Additional::Schema(values) => Some(values),
        _ => schema.items.as_deref(),
    }
}
