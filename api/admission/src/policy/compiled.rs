//! An expression of a stored policy, and its evaluation within a budget.

use api_cel::admission::{self, PolicyExpressionError, Wanted};
use api_cel::{Budget, Env, EvaluateError, Expression, Scope, Value};

/// What a policy's evaluation ends with when it costs too much.
pub(super) const OUT_OF_BUDGET: &str = "validation failed due to running out of cost budget, no further validation rules will be run";

/// How the message about an expression that does not compile begins.
pub(super) const NOT_COMPILED: &str = "compilation";

/// An expression with its text. One that does not compile was stored by another version of the server; it
/// fails whenever it is evaluated.
#[derive(Debug)]
pub(super) struct Compiled {
    /// As it was written.
    pub(super) text: String,
    expression: Result<Expression, PolicyExpressionError>,
}

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// The expression came to no result; others may.
    Alone(String),
    /// The budget is used up: nothing more is evaluated.
    Budget,
}

impl Failed {
    /// For people.
    pub(super) fn message(self) -> String {
        match self {
            Self::Alone(message) => message,
            Self::Budget => OUT_OF_BUDGET.to_owned(),
        }
    }
}

impl Compiled {
    /// Compiles a text.
    pub(super) fn new(text: &str, env: &Env, wanted: Wanted) -> Self {
        Self { text: text.to_owned(), expression: admission::compile(text, env, wanted) }
    }

    /// The expression, where it compiled.
    pub(super) fn expression(&self) -> Option<&Expression> {
        self.expression.as_ref().ok()
    }

    /// What it yields.
    pub(super) fn evaluate<'v>(&'v self, scope: &Scope<'v>, budget: &mut Budget) -> Result<Value<'v>, Failed> {
        let expression = self.expression.as_ref().map_err(|complaint| Failed::Alone(format!("{NOT_COMPILED} error: {complaint}")))?;
        expression.evaluate(scope, budget).map_err(|error| match error {
            EvaluateError::OutOfBudget => Failed::Budget,
            error => Failed::Alone(format!("expression '{}' resulted in error: {error}", self.text)),
        })
    }
}
