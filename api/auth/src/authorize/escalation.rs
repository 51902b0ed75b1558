//! The check against privilege escalation: a user may not grant rights that the user does not hold. It applies to writes
//! of roles and bindings. As upstream, `system:masters` and users with the verb `escalate` (on roles) or `bind` (on the
//! role of a binding) are exempt.

use std::collections::BTreeMap;

use api_model::kind::GroupResource;
use api_model::request::{Attributes, UserInfo};
use api_model::view::View;
use serde_json::Value;
use thiserror::Error;

use super::{Authorizer, MASTERS};
use crate::role::GROUP;
use crate::rule::{Rule, quoted};

/// A write of an object.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The resource; only those of the RBAC group are checked.
    pub resource: &'a GroupResource,
    /// The object's namespace; empty at cluster scope.
    pub namespace: &'a str,
    /// The object's name.
    pub name: &'a str,
    /// The object to store.
    pub new: &'a Value,
    /// The stored object, on an update.
    pub old: Option<&'a Value>,
}

/// A write that would grant rights that its user does not hold. The text is the message of a Forbidden.
#[derive(Debug, Error)]
pub enum EscalationError {
    /// The user writes an aggregating role, whose rules are not known yet. Only a user who may do everything may write
    /// it.
    #[error("must have cluster-admin privileges to use an aggregationRule")]
    AggregationRule,
    /// The binding refers to a role that does not exist.
    #[error("{kind}.{GROUP} {name:?} not found")]
    RoleNotFound {
        /// Kind of the role, in lower case.
        kind: String,
        /// Name of the role.
        name: String,
    },
    /// The user does not hold all rules.
    #[error(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}{}",
        user.username, quoted(&user.groups), rules.join("\n"), resolution_errors(errors)
    )]
    MissingRules {
        /// The user.
        user: Box<UserInfo>,
        /// The missing rules.
        rules: Vec<String>,
        /// Roles that do not exist but are named in the user's bindings.
        errors: Vec<String>,
    },
}

fn resolution_errors(errors: &[String]) -> String {
    if errors.is_empty() { String::new() } else { format!("; resolution errors: [{}]", errors.join(" ")) }
}

/// Checks that the user holds all rights that the write grants.
pub fn check(authorizer: &Authorizer, user: &UserInfo, write: &Write<'_>, view: &dyn View) -> Result<(), EscalationError> {
    if write.resource.group != GROUP || user.in_group(MASTERS) {
        return Ok(());
    }
    let check = Check { authorizer, user, write, view };
    match write.resource.resource.as_str() {
        "roles" | "clusterroles" => check.role(),
        "rolebindings" | "clusterrolebindings" => check.binding(),
        _ => Ok(()),
    }
}

struct Check<'c> {
    authorizer: &'c Authorizer,
    user: &'c UserInfo,
    write: &'c Write<'c>,
    view: &'c dyn View,
}

impl Check<'_> {
    fn role(&self) -> Result<(), EscalationError> {
        let write = self.write;
        let same = |field: &str| {
            write.old.is_some_and(|old| old.get(field).unwrap_or(&Value::Null) == write.new.get(field).unwrap_or(&Value::Null))
        };
        if (same("rules") && same("aggregationRule")) || self.may("escalate", write.resource, write.name) {
            return Ok(());
        }
        // The rules that will be aggregated are unknown, so the user must hold all rights.
        let aggregates = write.new.get("aggregationRule").is_some_and(|a| !a.is_null());
        if aggregates && !same("aggregationRule") {
            let everything = [Rule::everything(), Rule::every_path()];
            self.holds("", &everything).map_err(|_| EscalationError::AggregationRule)?;
        }
        self.holds(write.namespace, &Rule::of_role(write.new))
    }

    fn binding(&self) -> Result<(), EscalationError> {
        let write = self.write;
        let same = |old: &Value, field: &str| old.get(field).unwrap_or(&Value::Null) == write.new.get(field).unwrap_or(&Value::Null);
        if write.old.is_some_and(|old| same(old, "roleRef") && same(old, "subjects")) {
            return Ok(());
        }
        let text = |field: &str| write.new.pointer(&format!("/roleRef/{field}")).and_then(Value::as_str).unwrap_or_default();
        let (kind, name) = (text("kind"), text("name"));
        let role = GroupResource::new(GROUP, if kind == "Role" { "roles" } else { "clusterroles" });
        if self.may("bind", &role, name) {
            return Ok(());
        }
        match self.authorizer.rbac.role_rules(kind, write.namespace, name, self.view) {
            Some(rules) => self.holds(write.namespace, &rules),
            None => Err(EscalationError::RoleNotFound { kind: kind.to_lowercase(), name: name.to_owned() }),
        }
    }

    /// Whether the user holds a verb on a role in the namespace of the write.
    fn may(&self, verb: &str, resource: &GroupResource, name: &str) -> bool {
        let attributes = Attributes {
            verb: verb.to_owned(),
            group: resource.group.clone(),
            version: "*".to_owned(),
            resource: resource.resource.clone(),
            namespace: self.write.namespace.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        self.authorizer.authorize(self.user, &attributes, self.view).is_allowed()
    }

    /// Checks that the user holds all rights of the rules in a namespace.
    fn holds(&self, namespace: &str, rules: &[Rule]) -> Result<(), EscalationError> {
        let (own, errors) = self.authorizer.rbac.rules_for(self.user, namespace, self.view);
        let missing: Vec<Rule> =
            rules.iter().flat_map(Rule::singles).filter(|single| !own.iter().any(|rule| rule.covers(single))).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut described: Vec<String> = compact(missing).iter().map(Rule::describe).collect();
        described.sort();
        described.dedup();
        Err(EscalationError::MissingRules { user: Box::new(self.user.clone()), rules: described, errors })
    }
}

/// Merges single rules that differ only in the verb.
fn compact(singles: Vec<Rule>) -> Vec<Rule> {
    let mut merged: BTreeMap<Rule, Vec<String>> = BTreeMap::new();
    for single in singles {
        let verbs = merged.entry(Rule { verbs: Vec::new(), ..single.clone() }).or_default();
        verbs.extend(single.verbs.into_iter().filter(|v| !verbs.contains(v)).collect::<Vec<_>>());
    }
    merged.into_iter().map(|(rule, verbs)| Rule { verbs, ..rule }).collect()
}
