//! Failures of mutating policies. A failure rejects the request, unless the failure policy is `Ignore`.

use serde_json::Value as Json;

use super::findings::status;
use super::hooks::{Binding, Policy};
use crate::request::Request;

/// The failures so far.
#[derive(Debug, Default)]
pub struct Failures {
    messages: Vec<String>,
    /// The first failure.
    reason: Option<&'static str>,
}

impl Failures {
    /// Records that a policy or its binding is misconfigured.
    pub fn misconfigured(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str) {
        let what = if binding.is_some() { "binding" } else { "policy" };
        self.add(policy, binding, &format!("failed to configure {what}: {why}"), "Forbidden");
    }

    /// Records that an expression failed or its change could not be applied.
    pub fn failed(&mut self, policy: &Policy, binding: &Binding, why: &str) {
        self.add(policy, Some(binding), why, "Invalid");
    }

    fn add(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str, reason: &'static str) {
        if policy.fails_open {
            return tracing::debug!(policy = policy.name, why, "a policy that cannot be evaluated is passed over");
        }
        self.reason.get_or_insert(reason);
        self.messages.push(match binding {
            Some(binding) => format!("policy '{}' with binding '{}' denied request: {why}", policy.name, binding.name),
            None => format!("policy {:?} denied request: {why}", policy.name),
        });
    }

    /// The Status of a rejected request. The code is always 403, whatever the reason is.
    pub fn refusal(&self, request: &Request<'_>) -> Option<Json> {
        let first = self.messages.first()?;
        Some(status(request, first, self.reason.unwrap_or("Forbidden"), 403, &self.messages))
    }
}
