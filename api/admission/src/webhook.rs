//! Webhooks as values: which requests each is called for, what it is activation, what its answer means, and
//! when it is asked again. Calling them is the server's business.
//!
//! A webhook's place in the order is its configuration's name, then its place in there. The words are
//! those of upstream's `admission/plugin/webhook`.

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

/// Resources that no webhook may keep anybody from changing: a broken one could then
/// never be removed.
const EXEMPT: [&str; 6] = [
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
];

/// Whether webhooks are not asked about a kind.
pub fn is_exempt(kind: &Kind) -> bool {
    kind.group == "admissionregistration.k8s.io" && EXEMPT.contains(&kind.plural.as_str())
}

/// Whether policies are not asked about a kind: themselves and their bindings, but not webhooks' configurations.
pub fn is_policy(kind: &Kind) -> bool {
    is_exempt(kind) && kind.kind.contains("AdmissionPolicy")
}

impl Webhook {
    /// As which of the forms of a request's object the webhook is to be asked; `None` when the request
    /// does not concern it. The first form is the one that the request is for, the others are the same
    /// resource in other groups and versions.
    ///
    /// # Errors
    /// When the request's namespace, whose labels decide, does not exist.
    pub fn concerns(&self, request: &Request<'_>, forms: &[&Kind], view: &dyn View) -> Result<Option<usize>, Denied> {
        let by_rules = || {
            let forms = if self.equivalent { forms } else { forms.get(..1).unwrap_or_default() };
            forms.iter().position(|form| self.rules.iter().any(|rule| rule.matches(request, form)))
        };
        // The cheap questions first: what the rules leave out needs no namespace.
        let (Some(form), true) = (by_rules(), wants_object(&self.objects, request)) else { return Ok(None) };
        Ok(in_namespace(&self.namespaces, request, view)?.then_some(form))
    }

    /// Whether it has match conditions, for which more of a request must be known.
    pub fn has_conditions(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// Whether a request that concerns it meets its match conditions. A webhook that counts as one that agrees
    /// when it cannot be asked is not asked either where its conditions have no value.
    ///
    /// # Errors
    /// When they have no value, which refuses the request.
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
