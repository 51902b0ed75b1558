//! The results of policies that the metrics count.

use std::time::Duration;

use super::compiled::{NOT_COMPILED, OUT_OF_BUDGET};

/// The result of one expression of a validating policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The policy's name.
    pub policy: String,
    /// The binding's name.
    pub binding: String,
    /// See [`error_type`].
    pub error_type: &'static str,
    /// `allow`, `deny`, `audit` or `warn`. Successful validations are not counted, as upstream.
    pub enforcement_action: String,
    /// How long the expression took.
    pub took: Duration,
}

/// Upstream's error type, by the error message. A failed validation is also an `invalid_error`.
pub fn error_type(message: Option<&str>) -> &'static str {
    match message {
        None => "no_error",
        Some(message) if message.starts_with(NOT_COMPILED) => "compile_error",
        Some(message) if message.starts_with(OUT_OF_BUDGET) => "out_of_budget",
        Some(_) => "invalid_error",
    }
}
