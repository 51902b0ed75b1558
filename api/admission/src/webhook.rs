//! Webhooks as values: which requests each is called for, what it is asked, what its answer means, and
//! when it is asked again. Calling them is the server's business.
//!
//! A webhook's place in the order is its configuration's name, then its place in there. The words are
//! those of upstream's `admission/plugin/webhook`.

mod answer;
mod config;
mod reinvocation;
mod review;
mod rule;

pub use answer::{Answer, BadAnswer, rejection};
pub(crate) use config::selector;
pub use config::{Endpoint, Webhook, ca_bundle};
pub use reinvocation::Reinvocation;
pub use review::{Gvk, Review};
pub use rule::Rule;

use api_model::kind::{GroupResource, Kind};
use api_model::selector::Selector;
use api_model::view::View;

use crate::denied::Denied;
use crate::policy::Asked;
use crate::request::{Operation, Request};

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
    pub fn wants(&self, asked: &Asked<'_>) -> Result<bool, String> {
        match self.conditions.hold(&asked.scope(None)) {
            Err(why) if self.fails_open => {
                tracing::debug!(webhook = self.name, why, "match conditions without a value pass a webhook over");
                Ok(false)
            }
            outcome => outcome,
        }
    }
}

/// Whether the labels of a request's object match, before or after.
pub(crate) fn wants_object(selector: &Selector, request: &Request<'_>) -> bool {
    selector.is_everything() || [request.object(), request.old].into_iter().flatten().any(|object| selector.matches(object))
}

/// Whether the labels of a request's namespace match. What is in no namespace always does.
///
/// # Errors
/// When the namespace does not exist.
pub fn in_namespace(selector: &Selector, request: &Request<'_>, view: &dyn View) -> Result<bool, Denied> {
    let is_namespace = request.kind.group.is_empty() && request.kind.plural == "namespaces";
    if selector.is_everything() || (request.namespace.is_empty() && !is_namespace) {
        return Ok(true);
    }
    if is_namespace
        && request.subresource.is_empty()
        && matches!(request.operation, Operation::Create | Operation::Update)
        && let Some(namespace) = request.object()
    {
        return Ok(selector.matches(namespace));
    }
    let (resource, name) = (GroupResource::new("", "namespaces"), if is_namespace { request.object_name() } else { request.namespace });
    match view.get(&resource, None, name) {
        Some(namespace) => Ok(selector.matches(&namespace)),
        None => Err(Denied::NotFound { resource, name: name.to_owned() }),
    }
}

#[cfg(test)]
mod tests;
