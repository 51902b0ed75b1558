//! Errors, in the words of cel-go.

use thiserror::Error;

/// An expression that does not parse, or whose names, functions or types do not fit.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("compilation failed: {0}")]
pub struct CompileError(pub(crate) String);

/// One thing wrong at a place of the text, in bytes from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Issue {
    pub(crate) at: usize,
    pub(crate) message: String,
}

impl CompileError {
    /// All issues with their places, as cel-go draws them.
    pub(crate) fn new(mut issues: Vec<Issue>, source: &str) -> Self {
        issues.sort_by_key(|issue| issue.at);
        let shown: Vec<String> = issues.iter().map(|issue| issue.show(source)).collect();
        Self(shown.join("\n"))
    }

    /// What is wrong, each with its place, without saying that compilation failed.
    pub fn issues(&self) -> &str {
        &self.0
    }
}

impl Issue {
    fn show(&self, source: &str) -> String {
        let before = source.get(..self.at.min(source.len())).unwrap_or_default();
        let line = before.matches('\n').count();
        let column = before.rsplit('\n').next().map_or(0, |text| text.chars().count());
        let text = source.split('\n').nth(line).unwrap_or_default();
        format!("ERROR: <input>:{}:{}: {}\n | {text}\n | {}^", line + 1, column + 1, self.message, ".".repeat(column))
    }
}

/// An evaluation that came to no result.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EvaluateError {
    /// It cost more than one evaluation may.
    #[error("operation cancelled: actual cost limit exceeded")]
    CallCost,
    /// It cost more than the budget held.
    #[error("running out of cost budget")]
    OutOfBudget,
    /// A value is not there, or not what a function takes: `no such key: x`, `division by zero`, …
    #[error("{0}")]
    Failed(String),
}

impl EvaluateError {
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// The same, told by whoever uses the variable that it befell.
    pub(crate) fn of_variable(self, name: &str) -> Self {
        match self {
            Self::Failed(message) => Self::Failed(format!("composited variable {name:?} fails to evaluate: {message}")),
            cost => cost,
        }
    }

    pub(crate) fn no_overload() -> Self {
        Self::failed("no such overload")
    }

    /// Whether evaluation must end whatever stands around it (`||` passes over other errors).
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}
