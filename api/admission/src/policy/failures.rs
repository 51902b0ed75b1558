//! Mutating policies that could not do what they want: each refuses the request, unless it says that it is
//! to be passed over then.

use serde_json::Value as Json;

use super::findings::status;
use super::hooks::{Binding, Policy};
use crate::request::Request;

/// What went wrong so far.
#[derive(Debug, Default)]
pub struct Failures {
    messages: Vec<String>,
    /// Of the first one.
    reason: Option<&'static str>,
}

impl Failures {
    /// A policy, or its binding, is not as it must be.
    pub fn misconfigured(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str) {
        let what = if binding.is_some() { "binding" } else { "policy" };
        self.add(policy, binding, &format!("failed to configure {what}: {why}"), "Forbidden");
    }

    /// An expression has no value, or what it yields cannot be put into the object.
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

    /// The Status of a request that is refused. Its code is that of a Forbidden whatever the reason is.
    pub fn refusal(&self, request: &Request<'_>) -> Option<Json> {
        let first = self.messages.first()?;
        Some(status(request, first, self.reason.unwrap_or("Forbidden"), 403, &self.messages))
    }
}
