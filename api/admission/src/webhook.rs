//! Admission webhooks without the calls: which requests a webhook is called for, the request and the response, and
//! reinvocation. The server makes the calls.
//!
//! Webhooks are ordered by the name of their configuration, then by their index in it. The messages are those of upstream's
//! `admission/plugin/webhook`.

mod answer;
mod config;
mod reinvocation;
mod review;

pub use answer::{Answer, BadAnswer, rejection};
pub use config::{Endpoint, Webhook, ca_bundle};
pub use reinvocation::Reinvocation;
pub use review::{Gvk, Review};

use api_model::kind::Kind;
use api_model::message::Message;
use api_model::view::View;

use crate::denied::Denied;
use crate::matching::{in_namespace, wants_object};
use crate::policy::Activation;
use crate::request::Request;

/// Resources that webhooks cannot block: otherwise a broken webhook could never be removed.
const EXEMPT: [&str; 6] = [
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
];

/// Whether webhooks are not called for a kind.
pub fn is_exempt(kind: &Kind) -> bool {
    kind.group == "admissionregistration.k8s.io" && EXEMPT.contains(&kind.plural.as_str())
}

/// Whether policies are not evaluated for a kind. This holds for policies and their bindings, but not for webhook
/// configurations.
pub fn is_policy(kind: &Kind) -> bool {
    is_exempt(kind) && kind.kind.contains("AdmissionPolicy")
}

impl Webhook {
    /// The index of the form in which the webhook gets the object; `None` if the request does not match. The first form
    /// is the form of the request. The others are the same resource in other groups and versions.
    ///
    /// # Errors
    /// The namespace of the request does not exist, and its labels are needed.
    pub fn concerns(&self, request: &Request<'_>, forms: &[&Kind], view: &dyn View) -> Result<Option<usize>, Denied> {
        let by_rules = || {
            let forms = if self.equivalent { forms } else { forms.get(..1).unwrap_or_default() };
            forms.iter().position(|form| self.rules.iter().any(|rule| rule.matches(request, form)))
        };
        // The cheap checks come first: a request that the rules exclude needs no namespace.
        let (Some(form), true) = (by_rules(), wants_object(&self.objects, request)) else { return Ok(None) };
        Ok(in_namespace(&self.namespaces, request, view)?.then_some(form))
    }

    /// Whether the webhook has match conditions.
    pub fn has_conditions(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// Whether a matching request meets the match conditions. If the conditions fail to evaluate and the failure policy
    /// is `Ignore`, the webhook is skipped.
    ///
    /// # Errors
    /// The conditions fail to evaluate and the failure policy is `Fail`. The server rejects the request.
    pub fn wants(&self, activation: &Activation<'_>) -> Result<bool, Message> {
        match self.conditions.hold(&activation.scope(None)) {
            Err(why) if self.fails_open => {
                tracing::debug!(webhook = self.name, %why, "match conditions without a value pass a webhook over");
                Ok(false)
            }
            outcome => outcome,
        }
    }
}

#[cfg(test)]
mod tests;
