//! An expression of a stored policy, and its evaluation within a budget.

use api_cel::admission::{self, PolicyExpressionError, Wanted};
use api_cel::{Budget, Env, EvaluateError, Expression, Scope, Value};

/// The message when the evaluation of a policy exceeds its budget.
pub(super) const OUT_OF_BUDGET: &str = "validation failed due to running out of cost budget, no further validation rules will be run";

/// The start of the message about an expression that does not compile.
pub(super) const NOT_COMPILED: &str = "compilation";

/// An expression with its text. If the expression does not compile, another version of the server stored it; each
/// evaluation of it fails.
#[derive(Debug)]
pub(super) struct Compiled {
    /// The text.
    pub(super) text: String,
    expression: Result<Expression, PolicyExpressionError>,
}

/// A failed evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// The expression failed; others can be evaluated.
    Alone(String),
    /// The budget is spent, so no further expression is evaluated.
    Budget,
}

impl Failed {
    /// The message.
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

    /// The expression, if it compiled.
    pub(super) fn expression(&self) -> Option<&Expression> {
        self.expression.as_ref().ok()
    }

    /// Evaluates the expression.
    pub(super) fn evaluate<'v>(&'v self, scope: &Scope<'v>, budget: &mut Budget) -> Result<Value<'v>, Failed> {
        let expression = self.expression.as_ref().map_err(|complaint| Failed::Alone(format!("{NOT_COMPILED} error: {complaint}")))?;
        expression.evaluate(scope, budget).map_err(|error| match error {
            EvaluateError::OutOfBudget => Failed::Budget,
            error => Failed::Alone(format!("expression '{}' resulted in error: {error}", self.text)),
        })
    }
}
