//! Match conditions of policies and webhooks, which are evaluated for requests that match the rules.

use api_cel::admission::{self, Wanted};
use api_cel::{Budget, MATCH_CONDITIONS_COST_MAX, Scope};
use api_model::message::Message;
use serde_json::Value;

use super::compiled::{Compiled, Failed};
use crate::json;

/// Match conditions, which must all be true.
#[derive(Debug, Default)]
pub(crate) struct Conditions(Vec<Compiled>);

impl Conditions {
    /// Compiles a list of `matchConditions`.
    pub(crate) fn new(owner: &Value, has_params: bool) -> Self {
        let listed = json::list(owner, "matchConditions");
        if listed.is_empty() {
            return Self::default();
        }
        let env = admission::env(has_params, true);
        Self(listed.iter().map(|condition| Compiled::new(json::text(condition, "expression").trim(), &env, Wanted::Bool)).collect())
    }

    /// Whether the list is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all conditions are true. One false condition makes the result false, even if others fail to evaluate.
    ///
    /// # Errors
    /// No condition is false and some fail to evaluate.
    pub(crate) fn hold<'v>(&'v self, scope: &Scope<'v>) -> Result<bool, Message> {
        let mut budget = Budget::new(MATCH_CONDITIONS_COST_MAX);
        let mut errors = Vec::new();
        for condition in &self.0 {
            match condition.evaluate(scope, &mut budget) {
                Ok(value) if value.as_bool() == Some(false) => return Ok(false),
                Ok(_) => {}
                Err(Failed::Budget) => return Err(Failed::Budget.message().into()),
                Err(failed) => errors.push(failed.message()),
            }
        }
        match errors.as_slice() {
            [] => Ok(true),
            [one] => Err(one.as_str().into()),
            many => Err(format!("[{}]", many.join(", ")).into()),
        }
    }
}
