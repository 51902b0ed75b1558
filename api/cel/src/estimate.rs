//! Estimates the maximum cost of an expression from its text and the limits of the schema, without an object. The rules
//! are those of cel-go's estimator and of Kubernetes' library. The size of the largest request limits unknown sizes.

pub(crate) mod calls;
mod sizes;

use api_schema::Structural;

use crate::infer::{Inferred, Variables};
use crate::node::{Fold, Kind, Literal, Node};

pub(crate) use calls::CHECK_COST;
pub use sizes::{REQUEST_BYTES_MAX, repeated};

/// The costs of creating lists, maps and messages.
pub(crate) const LIST_COST: u64 = 10;
pub(crate) const MAP_COST: u64 = 30;
pub(crate) const MESSAGE_COST: u64 = 40;

/// The maximum cost of an expression.
pub(crate) fn cost(root: &Node, schema: &Structural) -> u64 {
    node(root, &Variables::new(schema)).cost
}

/// The same for an expression with one variable.
pub(crate) fn cost_of_variable(root: &Node, name: &str, schema: &Structural) -> u64 {
    node(root, &Variables::default().with([(name, Inferred { schema: Some(schema), size: None })])).cost
}

/// The estimate of a node.
#[derive(Clone, Copy, Default)]
struct Estimate<'s> {
    cost: u64,
    known: Inferred<'s>,
}

impl Estimate<'_> {
    /// The maximum size.
    fn size(&self) -> u64 {
        self.known.size.or_else(|| self.known.schema.map(sizes::len_max)).unwrap_or(REQUEST_BYTES_MAX)
    }
}

/// The cost of reading `size` characters: a tenth, rounded up.
pub(crate) fn traversal(size: u64) -> u64 {
    size.div_ceil(10)
}

/// The cost of matching a text against a pattern, by their sizes.
pub(crate) fn matching(text: u64, pattern: u64) -> u64 {
    traversal(text.saturating_add(1)).saturating_mul(pattern.div_ceil(4))
}

fn node<'s>(part: &'s Node, variables: &Variables<'s>) -> Estimate<'s> {
    let schema = variables.schema(part);
    let sum = |parts: &[&'s Node]| parts.iter().map(|part| node(part, variables).cost).fold(0, u64::saturating_add);
    let sized = |cost: u64, size: usize| Estimate { cost, known: Inferred { schema: None, size: Some(size as u64) } };
    match &part.kind {
        Kind::Literal(literal) => sized(0, literal_size(literal)),
        Kind::Ident(name) => Estimate { cost: 1, known: variables.get(name).unwrap_or_default() },
        Kind::Select { operand, is_test, .. } => {
            let cost = node(operand, variables).cost.saturating_add(u64::from(!is_test));
            Estimate { cost, known: Inferred { schema, size: None } }
        }
        Kind::Call { function, is_member, args, .. } => {
            let mut estimate = calls::estimate(function, *is_member, args, variables);
            estimate.known.schema = estimate.known.schema.or(schema);
            estimate
        }
        Kind::List(entries) => sized(sum(&part.children()).saturating_add(LIST_COST), entries.len()),
        Kind::Map(entries) => sized(sum(&part.children()).saturating_add(MAP_COST), entries.len()),
        Kind::Message { fields, .. } => sized(sum(&part.children()).saturating_add(MESSAGE_COST), fields.len()),
        Kind::Fold(fold) => folded(fold, variables),
    }
}

fn literal_size(literal: &Literal) -> usize {
    match literal {
        Literal::String(text) => text.len(),
        Literal::Bytes(bytes) => bytes.len(),
        _ => 1,
    }
}

fn folded<'s>(fold: &'s Fold, variables: &Variables<'s>) -> Estimate<'s> {
    let range = node(&fold.range, variables);
    let start = node(&fold.start, variables);
    let times = range.size();
    // A list accumulator grows by an element in each step, other accumulators do not grow.
    let accumulated = match &fold.start.kind {
        Kind::List(_) | Kind::Map(_) => Inferred { schema: None, size: Some(times) },
        _ => start.known,
    };
    let inner = variables.within(fold, range.known, accumulated);
    let once = node(&fold.condition, &inner).cost.saturating_add(node(&fold.step, &inner).cost);
    let result = node(&fold.result, &variables.with([(&*fold.accumulator, accumulated)]));
    let cost = [range.cost, start.cost, once.saturating_mul(times), result.cost].into_iter().fold(0, u64::saturating_add);
    Estimate { cost, known: result.known }
}
