//! Collects the results of all validating policies of a request: the rejection, the warnings, and the annotations of the
//! audit log.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::checked::{Checked, error_type};
use super::evaluate::{Activation, Refusal};
use super::hooks::{Binding, Policy};
use crate::denied::Denied;
use crate::request::Request;

/// The maximum of bytes of an annotation's value.
const ANNOTATION_BYTES_MAX: usize = 10 * 1024;
/// The audit annotation for failures of bindings with the action `Audit`.
const FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";

/// The results so far.
#[derive(Debug, Default)]
pub struct Findings {
    /// The first rejection: the client gets this one.
    denied: Option<(String, String)>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Annotations for the audit log, in order; the first value of a key counts.
    pub annotations: Vec<(String, String)>,
    /// The results for metrics.
    pub checks: Vec<Checked>,
    /// Annotations of the current policy, which its bindings share.
    by_key: BTreeMap<String, Vec<String>>,
}

impl Findings {
    /// Evaluates a policy for a binding with one parameter object.
    pub fn validate(&mut self, policy: &Policy, binding: &Binding, activation: &Activation<'_>, params: Option<&Json>) {
        let validated = policy.validate(activation, params);
        for refusal in &validated.refusals {
            self.act(policy, binding, refusal);
        }
        for passed_over in &validated.passed_over {
            self.count(policy, binding, "allow", &passed_over.message, passed_over.took);
        }
        for (key, mut value) in validated.annotations {
            truncate(&mut value);
            let values = self.by_key.entry(key).or_default();
            if !values.contains(&value) {
                values.push(value);
            }
        }
        for failed in &validated.failed_annotations {
            self.count(policy, binding, "deny", &failed.message, failed.took);
            self.deny(policy, Some(binding), &failed.message, "");
        }
    }

    /// Publishes the annotations of the current policy.
    pub fn publish(&mut self, policy: &Policy) {
        for (key, values) in std::mem::take(&mut self.by_key) {
            self.annotations.push((format!("{}/{key}", policy.name), values.join(", ")));
        }
    }

    /// Records that a policy or its binding is misconfigured.
    pub fn misconfigured(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str) {
        if policy.fails_open {
            return tracing::debug!(policy = policy.name, why, "a policy that cannot be evaluated is passed over");
        }
        let what = if binding.is_some() { "binding" } else { "policy" };
        self.deny(policy, binding, &format!("failed to configure {what}: {why}"), "");
    }

    fn act(&mut self, policy: &Policy, binding: &Binding, refusal: &Refusal) {
        for action in &binding.actions {
            match action.as_str() {
                "Deny" => self.deny(policy, Some(binding), &refusal.message, &refusal.reason),
                "Warn" => self.warnings.push(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                    policy.name, binding.name, refusal.message
                )),
                "Audit" => self.annotations.push((
                    FAILURE.to_owned(),
                    json!([{"message": refusal.message, "policy": policy.name, "binding": binding.name,
                        "expressionIndex": refusal.index, "validationActions": binding.actions}])
                    .to_string(),
                )),
                _ => continue,
            }
            self.count(policy, binding, &action.to_lowercase(), &refusal.message, refusal.took);
        }
    }

    fn count(&mut self, policy: &Policy, binding: &Binding, action: &str, message: &str, took: Duration) {
        self.checks.push(Checked {
            policy: policy.name.clone(),
            binding: binding.name.clone(),
            error_type: error_type(Some(message)),
            enforcement_action: action.to_owned(),
            took,
        });
    }

    fn deny(&mut self, policy: &Policy, binding: Option<&Binding>, message: &str, reason: &str) {
        let with = binding.map(|binding| format!(" with binding '{}'", binding.name)).unwrap_or_default();
        let denial = || (format!("ValidatingAdmissionPolicy '{}'{with} denied request: {message}", policy.name), reason.to_owned());
        self.denied.get_or_insert_with(denial);
    }

    /// The Status of a rejected request.
    pub fn refusal(&self, request: &Request<'_>) -> Option<Json> {
        let (message, reason) = self.denied.as_ref()?;
        let (reason, code) = match reason.as_str() {
            "Unauthorized" => ("Unauthorized", 401),
            "Forbidden" => ("Forbidden", 403),
            "RequestEntityTooLarge" => ("RequestEntityTooLarge", 413),
            _ => ("Invalid", 422),
        };
        let text = Denied::forbidden(request, message.as_str()).to_string();
        Some(status(request, &text, reason, code, std::slice::from_ref(message)))
    }
}

/// A Status for the object of a request, with a cause for each message.
pub(super) fn status(request: &Request<'_>, message: &str, reason: &str, code: u16, causes: &[String]) -> Json {
    let causes: Vec<Json> = causes.iter().map(|message| json!({"message": message})).collect();
    let mut details = json!({"kind": request.kind.plural, "causes": causes});
    for (field, text) in [("name", request.object_name()), ("group", request.kind.group.as_str())] {
        if !text.is_empty() {
            crate::json::set(&mut details, field, text);
        }
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code, "details": details})
}

fn truncate(value: &mut String) {
    let mut end = ANNOTATION_BYTES_MAX.min(value.len());
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    value.truncate(end);
}
