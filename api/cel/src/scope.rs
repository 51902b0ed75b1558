//! The values of variables.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use crate::error::EvaluateError;
use crate::expression::Expression;
use crate::value::Value;

/// The values of variables. A declared variable without a value causes an error only when an expression uses it (`no
/// such attribute`).
#[derive(Default)]
pub struct Scope<'v> {
    values: BTreeMap<String, Value<'v>>,
    composed: BTreeMap<String, Composed<'v>>,
}

/// A variable that is an expression.
pub(crate) struct Composed<'v> {
    pub(crate) expression: &'v Expression,
    pub(crate) outcome: OnceCell<Result<Value<'v>, EvaluateError>>,
}

impl<'v> Scope<'v> {
    /// Sets the value of a variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: Value<'v>) -> Self {
        self.values.insert(name.to_owned(), value);
        self
    }

    /// Sets the expression of `variables.<name>`, which is evaluated in the same scope. It is evaluated at its first
    /// use and at most once. The evaluation of that use pays its cost. It may use only variables that were composed
    /// before it.
    #[must_use]
    pub fn with_composed(mut self, name: &str, expression: &'v Expression) -> Self {
        self.composed.insert(name.to_owned(), Composed { expression, outcome: OnceCell::new() });
        self
    }

    pub(crate) fn value(&self, name: &str) -> Option<&Value<'v>> {
        self.values.get(name)
    }

    pub(crate) fn composed(&self, name: &str) -> Option<&Composed<'v>> {
        self.composed.get(name)
    }
}
