//! `x-kubernetes-validations`: expressions in the Common Expression Language over a custom resource's
//! values. The `cel` crate parses and evaluates; added here is what Kubernetes adds: names are checked
//! against the schema before a definition is stored, values get the types of their schema, and no
//! expression runs that could run for long.
//!
//! The interpreter cannot be stopped once it runs. So the most that an expression can cost is worked out
//! before, from its text and the sizes of what it is about to look at, in units of about one step.

mod check;
mod cost;
mod infer;
mod names;
mod value;

use std::cell::OnceCell;
use std::sync::{Arc, LazyLock};

use api_schema::Structural;
use cel::objects::OptionalValue;
use cel::{Context, Env, ExecutionError, Program, Value};
use thiserror::Error;

pub use cost::{Sizes, repeated, sizes};

/// The most that one expression may cost by the schema's limits: upstream's `StaticEstimatedCostLimit`.
pub const ESTIMATED_COST_MAX: u64 = 10_000_000;
/// The most that all expressions together may cost when an object is validated: upstream's
/// `RuntimeCELCostBudget`.
pub const OBJECT_COST_MAX: u64 = 10_000_000;

/// An expression that cannot be a rule, in the words of cel-go.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("compilation failed: {0}")]
pub struct CompileError(String);

/// An evaluation that came to no result.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct EvaluateError(String);

/// What an expression yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yields {
    /// Whether a rule holds.
    Bool,
    /// A message.
    Text,
}

/// A parsed expression.
#[derive(Debug)]
pub struct Expression {
    program: Program,
    uses_old_self: bool,
}

/// The values that expressions at one place see; brought into the interpreter's form once for all of them.
pub struct Scope {
    this: Value,
    old: Option<Value>,
    plain: OnceCell<Context<'static, 'static>>,
    optional: OnceCell<Context<'static, 'static>>,
}

/// The functions that expressions have: CEL's own and its extensions for texts.
static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    // Nothing else is declared yet that it could collide with.
    let _ = env.add_extension(cel::extensions::strings);
    Arc::new(env)
});

impl Expression {
    /// Parses an expression.
    pub fn parse(text: &str) -> Result<Self, CompileError> {
        let program = ENV.compile(text).map_err(|errors| CompileError(errors.to_string()))?;
        let uses_old_self = program.references().has_variable("oldSelf");
        Ok(Self { program, uses_old_self })
    }

    /// Parses an expression and checks its names against the schema of the place that it is about.
    pub fn compile(text: &str, schema: &Structural, is_root: bool, yields: Yields) -> Result<Self, CompileError> {
        let expression = Self::parse(text)?;
        check::names(&expression.program, schema, is_root, yields).map_err(CompileError)?;
        Ok(expression)
    }

    /// Whether the expression looks at the value before an update.
    pub fn uses_old_self(&self) -> bool {
        self.uses_old_self
    }

    /// The most that one evaluation can cost. Without sizes of actual values, by the schema's limits.
    pub fn cost(&self, schema: &Structural, sizes: Option<Sizes>) -> u64 {
        cost::of(self.program.expression(), schema, sizes)
    }

    /// Whether the rule holds.
    pub fn holds(&self, scope: &Scope, optional_old: bool) -> Result<bool, EvaluateError> {
        match self.evaluate(scope, optional_old)? {
            Value::Bool(holds) => Ok(holds),
            other => Err(EvaluateError(format!("cel expression evaluated to {} rather than to a bool", other.type_of()))),
        }
    }

    /// The text that the expression makes.
    pub fn text(&self, scope: &Scope, optional_old: bool) -> Result<String, EvaluateError> {
        match self.evaluate(scope, optional_old)? {
            Value::String(text) => Ok(text.trim().to_owned()),
            other => Err(EvaluateError(format!("messageExpression evaluated to {} rather than to a string", other.type_of()))),
        }
    }

    fn evaluate(&self, scope: &Scope, optional_old: bool) -> Result<Value, EvaluateError> {
        self.program.execute(scope.context(optional_old)).map_err(|error| {
            EvaluateError(match error {
                ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
                ExecutionError::NoSuchOverload(_) => "no such overload".to_owned(),
                ExecutionError::IndexOutOfBounds(_) => "index out of bounds".to_owned(),
                ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
                other => other.to_string(),
            })
        })
    }
}

impl Scope {
    /// The value at a place and what it was before, in the types of their schema.
    pub fn new(schema: &Structural, this: &serde_json::Value, old: Option<&serde_json::Value>) -> Self {
        let (plain, optional) = (OnceCell::new(), OnceCell::new());
        Self { this: value::typed(schema, this), old: old.map(|old| value::typed(schema, old)), plain, optional }
    }

    /// The variables; `oldSelf` is an optional value or, if there is one, the value itself.
    fn context(&self, optional_old: bool) -> &Context<'static, 'static> {
        let place = if optional_old { &self.optional } else { &self.plain };
        place.get_or_init(|| {
            let mut context = Context::with_env(Arc::clone(&ENV));
            context.add_variable_from_value("self", self.this.clone());
            let old = match (&self.old, optional_old) {
                (Some(old), false) => Some(old.clone()),
                (Some(old), true) => Some(Value::Opaque(Arc::new(OptionalValue::of(old.clone())))),
                (None, true) => Some(Value::Opaque(Arc::new(OptionalValue::none()))),
                (None, false) => None,
            };
            if let Some(old) = old {
                context.add_variable_from_value("oldSelf", old);
            }
            context
        })
    }
}

#[cfg(test)]
mod tests;
