//! What an expression can cost at most: a step for each part, times the length of what it is repeated for.

use api_schema::{Additional, Structural};
use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr};
use serde_json::Value;

use crate::infer::Variables;

/// Bytes of the largest request: what lists and texts without a limit are bounded by.
const REQUEST_BYTES_MAX: u64 = 3 * 1024 * 1024;
/// Texts are looked at this many characters a step.
const TEXT_CHARS_A_STEP: u64 = 10;

/// Sizes of actual values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Elements of the longest list or map.
    pub collection: u64,
    /// Characters of the longest text.
    pub text: u64,
}

/// The sizes of a value.
pub fn sizes(value: &Value) -> Sizes {
    let of_all = |values: &mut dyn Iterator<Item = &Value>, len: usize| {
        values.map(sizes).fold(Sizes { collection: len as u64, text: 0 }, Sizes::max)
    };
    match value {
        Value::Array(list) => of_all(&mut list.iter(), list.len()),
        Value::Object(map) => of_all(&mut map.values(), map.len()),
        Value::String(text) => Sizes { collection: 0, text: text.len() as u64 },
        _ => Sizes::default(),
    }
}

impl Sizes {
    /// The larger of each.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { collection: self.collection.max(other.collection), text: self.text.max(other.text) }
    }
}

/// The most that an expression can cost.
pub fn of(expression: &IdedExpr, schema: &Structural, sizes: Option<Sizes>) -> u64 {
    Estimate { sizes }.cost(expression, &Variables::new(schema))
}

struct Estimate {
    sizes: Option<Sizes>,
}

impl Estimate {
    fn cost(&self, expression: &IdedExpr, variables: &Variables<'_>) -> u64 {
        let all = |parts: &mut dyn Iterator<Item = &IdedExpr>| parts.map(|part| self.cost(part, variables)).fold(1, u64::saturating_add);
        match &expression.expr {
            Expr::Call(call) => {
                let parts = all(&mut call.target.iter().map(|target| &**target).chain(&call.args));
                parts.saturating_add(if reads_text(&call.func_name) { self.text() / TEXT_CHARS_A_STEP } else { 0 })
            }
            Expr::Select(select) => all(&mut std::iter::once(&*select.operand)),
            Expr::List(list) => all(&mut list.elements.iter()),
            Expr::Map(map) => all(&mut map.entries.iter().flat_map(|entry| parts(&entry.expr))),
            Expr::Struct(made) => all(&mut made.entries.iter().flat_map(|entry| parts(&entry.expr))),
            Expr::Comprehension(comprehension) => {
                let inner = variables.within(comprehension);
                let once = self.cost(&comprehension.loop_step, &inner);
                let times = self.len(&comprehension.iter_range, variables);
                [&comprehension.iter_range, &comprehension.accu_init, &comprehension.result]
                    .into_iter()
                    .map(|part| self.cost(part, &inner))
                    .fold(once.saturating_mul(times), u64::saturating_add)
            }
            Expr::Ident(_) => 1,
            Expr::Literal(_) | Expr::Unspecified => 0,
        }
    }

    /// How many elements a range has at most.
    fn len(&self, range: &IdedExpr, variables: &Variables<'_>) -> u64 {
        if let Expr::List(list) = &range.expr {
            return list.elements.len() as u64;
        }
        let by_schema = variables.infer(range).map_or(REQUEST_BYTES_MAX, len_by_schema);
        match self.sizes {
            None => by_schema,
            // What is split is as long as the text.
            Some(sizes) if variables.infer(range).is_none() => sizes.collection.max(sizes.text),
            Some(sizes) => by_schema.min(sizes.collection),
        }
    }

    /// How long a text is at most. Without actual values nobody is refused for texts alone.
    fn text(&self) -> u64 {
        self.sizes.map_or(0, |sizes| sizes.text)
    }
}

fn parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

fn reads_text(function: &str) -> bool {
    matches!(
        function,
        "matches"
            | "contains"
            | "startsWith"
            | "endsWith"
            | "indexOf"
            | "lastIndexOf"
            | "replace"
            | "split"
            | "join"
            | "lowerAscii"
            | "upperAscii"
            | "trim"
            | "_+_"
            | "_==_"
            | "format"
            | "reverse"
    )
}

/// The most elements that a list or map may have.
fn len_by_schema(schema: &Structural) -> u64 {
    let (limit, element) = match &schema.additional {
        Additional::Schema(values) => (schema.limits.max_properties, Some(&**values)),
        _ if schema.kind == "object" => return schema.properties.len() as u64,
        _ => (schema.limits.max_items, schema.items.as_deref()),
    };
    limit.unwrap_or_else(|| REQUEST_BYTES_MAX / element.map_or(2, bytes_min))
}

/// The fewest bytes that a value of a schema takes in a request, its comma included.
fn bytes_min(schema: &Structural) -> u64 {
    let own = match schema.kind.as_str() {
        "string" => schema.limits.min_length.unwrap_or_default() + 2,
        "boolean" => 4,
        "object" => {
            let required = schema.required.iter().filter_map(|name| Some((name, schema.properties.get(name)?)));
            required.map(|(name, property)| name.len() as u64 + 3 + bytes_min(property)).sum::<u64>() + 2
        }
        "array" => 2,
        _ => 1,
    };
    own + 1
}

/// How many values of a schema there can be at a place in it: the product of the limits of the lists and
/// maps around it.
pub fn repeated(outer: u64, schema: &Structural) -> u64 {
    outer.saturating_mul(len_by_schema(schema).max(1))
}
