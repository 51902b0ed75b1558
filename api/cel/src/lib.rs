//! The Common Expression Language as in Kubernetes: for `x-kubernetes-validations` of custom resources, match conditions of
//! webhooks, admission policies and selectors of devices.
//!
//! The input is the text of an expression and the declarations of its variables ([`Env`]). The output is an [`Expression`]
//! whose names, functions and types are checked. It is evaluated with the values of a [`Scope`] within a [`Budget`]. The
//! error messages are those of cel-go and Kubernetes.
//!
//! The `cel` crate parses. This crate implements types, functions, evaluation and cost, because every step of an
//! evaluation must have a cost. For any text and any values, an evaluation ends after [`CALL_COST_MAX`] units. A unit
//! is about one step, or ten characters that are read.
//!
//! Callers decide which fields of objects are expressions and what a result means.

pub mod admission;
mod authorizer;
mod budget;
mod check;
pub mod device;
mod env;
mod error;
mod estimate;
mod evaluate;
mod expression;
mod functions;
mod infer;
mod library;
mod macros;
mod meter;
mod named_format;
mod names;
mod node;
mod openapi;
mod operators;
mod parse;
mod schema;
mod scope;
mod time;
mod types;
mod url;
mod value;
mod version;

use api_schema::Structural;

pub use authorizer::{Authorizer, Check, Decision, Question, Stage};
pub use budget::Budget;
pub use env::Env;
pub use error::{CompileError, EvaluateError};
pub use estimate::{REQUEST_BYTES_MAX, repeated};
pub use expression::Expression;
pub use named_format::Format;
pub use names::{escape, is_reserved, unescape};
pub use openapi::type_of_kind;
pub use schema::{Shape, type_of};
pub use scope::Scope;
pub use types::{ObjectType, Type};
pub use url::Url;
pub use value::{Key, Text, Value};

/// The maximum cost of one evaluation: upstream's `PerCallLimit`.
pub const CALL_COST_MAX: u64 = 1_000_000;
/// The maximum cost of all expressions together in the validation of an object or the evaluation of a policy:
/// upstream's `RuntimeCELCostBudget`.
pub const OBJECT_COST_MAX: u64 = 10_000_000;
/// The maximum cost of the match conditions of one webhook or policy: upstream's `RuntimeCELCostBudgetMatchConditions`.
pub const MATCH_CONDITIONS_COST_MAX: u64 = 2_500_000;
/// The maximum cost of one expression by the schema's limits: upstream's `StaticEstimatedCostLimit`.
pub const ESTIMATED_COST_MAX: u64 = 10_000_000;

impl Expression {
    /// Parses an expression and checks it against the declarations. A caller that needs a certain type compares it with
    /// [`Expression::result`].
    pub fn compile(text: &str, env: &Env) -> Result<Self, CompileError> {
        let parsed = parse::parse(text)?;
        let result = check::check(&parsed.root, env).map_err(|issues| CompileError::new(issues, &parsed.source))?;
        Ok(Self { root: parsed.root, result })
    }

    /// The upper bound of the cost of one evaluation when `self` and `oldSelf` have this schema.
    pub fn estimate(&self, schema: &Structural) -> u64 {
        estimate::cost(&self.root, schema)
    }

    /// The upper bound of the cost of one evaluation when the variable of that name has this schema.
    pub fn estimate_variable(&self, name: &str, schema: &Structural) -> u64 {
        estimate::cost_of_variable(&self.root, name, schema)
    }

    /// Evaluates the expression. The budget pays for it even if the evaluation fails.
    pub fn evaluate<'v>(&self, scope: &Scope<'v>, budget: &mut Budget) -> Result<Value<'v>, EvaluateError> {
        let (result, cost) = evaluate::run(&self.root, scope, budget.left().min(CALL_COST_MAX));
        match (result, budget.pay(cost)) {
            (_, false) => Err(EvaluateError::OutOfBudget),
            (result, true) => result,
        }
    }
}

#[cfg(test)]
mod tests;
