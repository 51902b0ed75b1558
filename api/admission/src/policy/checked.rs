//! What is counted about policies: each time one had something to say, or could not say it.

use std::time::Duration;

use super::compiled::{NOT_COMPILED, OUT_OF_BUDGET};

/// One expression of a validating policy, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The policy's name.
    pub policy: String,
    /// The binding's name.
    pub binding: String,
    /// See [`error_type`].
    pub error_type: &'static str,
    /// `allow`, `deny`, `audit` or `warn`. What simply agrees is not counted, as upstream has it.
    pub enforcement_action: String,
    /// How long the expression took.
    pub took: Duration,
}

/// Upstream's word for what went wrong, by the message about it: also an object that does not follow the rule is an
/// `invalid_error`.
pub fn error_type(message: Option<&str>) -> &'static str {
    match message {
        None => "no_error",
        Some(message) if message.starts_with(NOT_COMPILED) => "compile_error",
        Some(message) if message.starts_with(OUT_OF_BUDGET) => "out_of_budget",
        Some(_) => "invalid_error",
    }
}
