//! Authorization: `system:masters` may do everything. A node may do what its Pods need. Every user may do what RBAC
//! grants.
//!
//! Roles and bindings are compiled into an index by subject ([`rbac`]), which is valid until one of the four resources
//! changes. The node authorizer ([`node`]) reads the Pods that are bound to the node. No authorizer denies a request by
//! itself: a request that none allows is rejected with the reasons of all.

pub mod escalation;
pub mod node;
pub mod rbac;

use api_model::request::{Attributes, UserInfo};
use api_model::view::View;
use serde_json::{Value, json};

use crate::rule::Rule;
use escalation::EscalationError;
use rbac::Rbac;

/// The group that may do everything.
pub const MASTERS: &str = "system:masters";

/// The decision on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Allowed, with the reason for the audit.
    Allow(String),
    /// Not allowed by any authorizer, with their reasons for the message to the user; may be empty.
    NoOpinion(String),
}

impl Decision {
    /// Whether the request is allowed.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow(_))
    }

    /// The reason.
    pub fn reason(&self) -> &str {
        match self {
            Self::Allow(reason) | Self::NoOpinion(reason) => reason,
        }
    }
}

/// Decides what users may do.
#[derive(Default)]
pub struct Authorizer {
    rbac: Rbac,
}

impl Authorizer {
    /// Decides on a request of the user.
    pub fn authorize(&self, user: &UserInfo, attributes: &Attributes, view: &dyn View) -> Decision {
        if user.in_group(MASTERS) {
            return Decision::Allow(String::new());
        }
        let node = node::authorize(user, attributes, view);
        if node.is_allowed() {
            return node;
        }
        match self.rbac.authorize(user, attributes, view) {
            Decision::NoOpinion(reason) => {
                let reasons: Vec<&str> = [node.reason(), &reason].into_iter().filter(|r| !r.is_empty()).collect();
                Decision::NoOpinion(reasons.join("\n"))
            }
            allowed @ Decision::Allow(_) => allowed,
        }
    }

    /// The `status` of a SelfSubjectRulesReview: what the user may do in a namespace.
    pub fn rules_for(&self, user: &UserInfo, namespace: &str, view: &dyn View) -> Value {
        let (mut rules, mut errors) = self.rbac.rules_for(user, namespace, view);
        if user.in_group(MASTERS) {
            rules.insert(0, Rule::everything());
            rules.insert(1, Rule::every_path());
        }
        let is_node = node::identity(user).is_some();
        if is_node {
            errors.insert(0, "node authorizer does not support user rule resolution".to_owned());
        }
        let mut status = json!({
            "resourceRules": rules.iter().filter(|r| !r.resources.is_empty()).map(Rule::to_resource_rule).collect::<Vec<_>>(),
            "nonResourceRules": rules.iter().filter(|r| !r.paths.is_empty()).map(Rule::to_path_rule).collect::<Vec<_>>(),
            "incomplete": is_node || !errors.is_empty(),
        });
        if let (false, Some(map)) = (errors.is_empty(), status.as_object_mut()) {
            map.insert("evaluationError".to_owned(), Value::from(errors.join(", ")));
        }
        status
    }

    /// Checks that the user holds all rights that a write of a Role, ClusterRole or binding grants. Objects of other
    /// kinds grant no rights.
    pub fn check_escalation(&self, user: &UserInfo, write: &escalation::Write<'_>, view: &dyn View) -> Result<(), EscalationError> {
        escalation::check(self, user, write, view)
    }
}

/// The message of a rejected request, in upstream's words after `RESOURCE "NAME" is forbidden: `.
pub fn forbidden_message(user: &UserInfo, attributes: &Attributes, reason: &str) -> String {
    let username = Value::from(user.username.as_str());
    let verb = &attributes.verb;
    let mut message = if attributes.is_resource() {
        let resource = match attributes.subresource.as_str() {
            "" => attributes.resource.clone(),
            sub => format!("{}/{sub}", attributes.resource),
        };
        let scope = match attributes.namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        format!("User {username} cannot {verb} resource {resource:?} in API group {:?} {scope}", attributes.group)
    } else {
        format!("User {username} cannot {verb} path {:?}", attributes.path)
    };
    // As upstream, so that no browser renders the message as HTML.
    message = message.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if reason.is_empty() { message } else { format!("{message}: {reason}") }
}

#[cfg(test)]
mod tests;
