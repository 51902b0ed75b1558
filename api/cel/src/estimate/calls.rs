//! The maximum costs of calls, and the maximum sizes of their results.

use super::{Estimate, matching, node, traversal};
use crate::infer::{Inferred, Variables};
use crate::node::Node;

/// The maximum of characters of a number as text.
const NUMBER_LEN_MAX: u64 = 32;
/// The cost of an authorization check; the limit allows two in one expression.
pub(crate) const CHECK_COST: u64 = 350_000;
/// A tenth of the bytes of two IP addresses of the maximum length.
const ADDRESS_COST: u64 = 4;

pub(super) fn estimate<'s>(function: &str, is_member: bool, args: &'s [Node], variables: &Variables<'s>) -> Estimate<'s> {
    let parts: Vec<Estimate<'s>> = args.iter().map(|arg| node(arg, variables)).collect();
    let sum = parts.iter().map(|part| part.cost).fold(0, u64::saturating_add);
    let size = |index: usize| parts.get(index).map_or(0, Estimate::size);
    let (own, size) = match function {
        "_&&_" | "_||_" => (0, Some(1)),
        "_?_:_" => return conditional(&parts),
        "_+_" => added(size(0), size(1), &parts),
        "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" => (traversal(size(0).min(size(1))).max(1), Some(1)),
        "@in" if is_map(&parts) => (1, Some(1)),
        "@in" => (size(1), Some(1)),
        "matches" => (matching(size(0), size(1)), Some(1)),
        "find" | "findAll" => (matching(size(0), size(1)), Some(size(0))),
        "startsWith" | "endsWith" => (traversal(size(1)), Some(1)),
        "contains" => (traversal(size(0)).saturating_mul(traversal(size(1))), Some(1)),
        "sets.contains" | "sets.equivalent" | "sets.intersects" => (size(0).saturating_mul(size(1)), Some(1)),
        "isSorted" | "sum" | "indexOf" | "lastIndexOf" => (size(0), Some(1)),
        "max" | "min" => (size(0), None),
        "lowerAscii" | "upperAscii" | "substring" | "trim" | "reverse" | "strings.quote" => (traversal(size(0)), Some(size(0))),
        "split" => (traversal(size(0).saturating_mul(2)), Some(size(0))),
        "replace" => (traversal(size(0).saturating_mul(2)), Some(replaced(size(0), size(1), size(2)))),
        "join" => joined(size(0), size(1)),
        "format" => (traversal(size(0)), None),
        "check" => (CHECK_COST, Some(1)),
        "containsIP" | "containsCIDR" => (ADDRESS_COST.saturating_add(traversal(size(1))), Some(1)),
        "url" | "isURL" | "quantity" | "isQuantity" | "cidr" | "isIP" | "isCIDR" | "ip.isCanonical" | "semver" | "isSemver"
        | "validate" => (traversal(size(0)).max(1), Some(size(0))),
        "ip" if !is_member => (traversal(size(0)).max(1), Some(1)),
        "string" | "bytes" => (1, Some(size(0).max(NUMBER_LEN_MAX))),
        _ => (1, None),
    };
    Estimate { cost: sum.saturating_add(own), known: Inferred { schema: None, size } }
}

fn is_map(parts: &[Estimate<'_>]) -> bool {
    parts.get(1).and_then(|part| part.known.schema).is_some_and(|schema| schema.kind == "object")
}

fn conditional<'s>(parts: &[Estimate<'s>]) -> Estimate<'s> {
    let [test, yes, no] = parts else { return Estimate::default() };
    let cost = test.cost.saturating_add(yes.cost.max(no.cost));
    Estimate { cost, known: Inferred { schema: None, size: Some(yes.size().max(no.size())) } }
}

/// Numbers and lists are added in one step, texts are copied.
fn added(left: u64, right: u64, parts: &[Estimate<'_>]) -> (u64, Option<u64>) {
    let size = left.saturating_add(right);
    let is_text = |part: &Estimate<'_>| part.known.schema.is_none_or(|schema| schema.kind == "string");
    (if parts.iter().all(is_text) { traversal(size).max(1) } else { 1 }, Some(size))
}

/// The maximum length of a text after each `old` is replaced.
fn replaced(len: u64, old: u64, new: u64) -> u64 {
    match old {
        0 => len.saturating_add(1).saturating_mul(new).saturating_add(len),
        old => len.max(len.div_ceil(old).saturating_mul(new)),
    }
}

/// The size of joined elements. If the sizes of the elements are unknown, the size of the whole list limits them.
fn joined(elements: u64, separator: u64) -> (u64, Option<u64>) {
    let size = elements.saturating_add(separator.min(super::REQUEST_BYTES_MAX).saturating_mul(elements.saturating_sub(1)));
    (traversal(size), Some(size))
}
