//! What the schema says of parts of an expression: fields of `self` and `oldSelf`, elements of lists, values
//! of maps. Where it says nothing, anything goes.

use api_schema::{Additional, Structural};
use cel::IdedExpr;
use cel::common::ast::{ComprehensionExpr, Expr, LiteralValue};

use crate::names::unescape;

/// Variables with the schemas of what they hold, innermost last.
#[derive(Clone, Default)]
pub struct Variables<'s> {
    known: Vec<(String, Option<&'s Structural>)>,
}

/// What an expression is made of.
#[derive(Clone, Copy)]
pub struct Root<'s> {
    /// The schema of the place.
    pub schema: &'s Structural,
    /// Whether the place is a whole object, with type and metadata.
    pub is_root: bool,
}

impl<'s> Variables<'s> {
    /// `self` and `oldSelf`.
    pub fn new(schema: &'s Structural) -> Self {
        Self { known: vec![("self".to_owned(), Some(schema)), ("oldSelf".to_owned(), Some(schema))] }
    }

    /// Whether there is a variable of that name.
    pub fn has(&self, name: &str) -> bool {
        self.known.iter().any(|(known, _)| known == name)
    }

    fn schema(&self, name: &str) -> Option<&'s Structural> {
        self.known.iter().rev().find(|(known, _)| known == name)?.1
    }

    /// The variables in the steps of a comprehension.
    pub fn within(&self, comprehension: &ComprehensionExpr) -> Self {
        let mut inner = self.clone();
        let range = self.infer(&comprehension.iter_range);
        let element = range.and_then(element);
        // Over a map, a single variable is the key.
        let single = element.filter(|_| range.is_some_and(|range| range.kind == "array"));
        match &comprehension.iter_var2 {
            Some(second) => {
                inner.known.push((comprehension.iter_var.clone(), None));
                inner.known.push((second.clone(), element));
            }
            None => inner.known.push((comprehension.iter_var.clone(), single)),
        }
        inner.known.push((comprehension.accu_var.clone(), None));
        inner
    }

    /// The schema of what an expression yields, where that is known.
    pub fn infer(&self, expression: &IdedExpr) -> Option<&'s Structural> {
        match &expression.expr {
            Expr::Ident(name) => self.schema(name),
            Expr::Select(select) if !select.test => self.infer(&select.operand)?.field(&unescape(&select.field)),
            Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
                ("_[_]" | "_[?_]", [operand, _]) => element(self.infer(operand)?),
                ("_?._", [operand, field]) => match &field.expr {
                    Expr::Literal(LiteralValue::String(name)) => self.infer(operand)?.field(&unescape(name.inner())),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        }
    }
}

/// The schema of a list's elements or of a map's values.
fn element(schema: &Structural) -> Option<&Structural> {
    match &schema.additional {
        Additional::Schema(values) => Some(values),
        _ => schema.items.as_deref(),
    }
}
