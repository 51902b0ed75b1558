//! Nobody may give rights, to others or to themselves, that they do not hold: the check on writes
//! of roles and bindings. `system:masters`, holders of the verb `escalate` (on roles) and of the
//! verb `bind` (on the role that a binding refers to) are exempt, as upstream.

use std::collections::BTreeMap;

use api_model::kind::GroupResource;
use api_model::request::{Attributes, UserInfo};
use api_model::view::View;
use serde_json::Value;
use thiserror::Error;

use super::{Authorizer, MASTERS};
use crate::role::GROUP;
use crate::rule::{Rule, quoted};

/// A write about to happen.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// Which resource; only the RBAC group's are looked at.
    pub resource: &'a GroupResource,
    /// The object's namespace; empty at cluster scope.
    pub namespace: &'a str,
    /// The object's name.
    pub name: &'a str,
    /// The object to be stored.
    pub new: &'a Value,
    /// The object stored now, on a change.
    pub old: Option<&'a Value>,
}

/// A write that would grant rights which its user does not hold. The text is the message of a Forbidden.
#[derive(Debug, Error)]
pub enum EscalationError {
    /// Only a user who may do everything may write an aggregating role: its rules are not known yet.
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
    NotHeld {
        /// The user.
        user: Box<UserInfo>,
        /// The missing rules.
        rules: Vec<String>,
        /// Roles that the user's bindings refer to and that do not exist.
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
    match write.resource.resource.as_str() {
        "roles" | "clusterroles" => check_role(authorizer, user, write, view),
        "rolebindings" | "clusterrolebindings" => check_binding(authorizer, user, write, view),
        _ => Ok(()),
    }
}

fn check_role(authorizer: &Authorizer, user: &UserInfo, write: &Write<'_>, view: &dyn View) -> Result<(), EscalationError> {
    let same =
        |field: &str| write.old.is_some_and(|old| old.get(field).unwrap_or(&Value::Null) == write.new.get(field).unwrap_or(&Value::Null));
    if (same("rules") && same("aggregationRule")) || may(authorizer, user, "escalate", write.resource, write.namespace, write.name, view) {
        return Ok(());
    }
    // What will be aggregated is unknown: only who may do everything may say so.
    let aggregates = write.new.get("aggregationRule").is_some_and(|a| !a.is_null());
    if aggregates && !same("aggregationRule") {
        let everything = [Rule::everything(), Rule::every_path()];
        confirm(authorizer, user, "", &everything, view).map_err(|_| EscalationError::AggregationRule)?;
    }
    confirm(authorizer, user, write.namespace, &Rule::of_role(write.new), view)
}

fn check_binding(authorizer: &Authorizer, user: &UserInfo, write: &Write<'_>, view: &dyn View) -> Result<(), EscalationError> {
    let field = |object: &Value, name: &str| object.get(name).cloned().unwrap_or_default();
    if write
        .old
        .is_some_and(|old| field(old, "roleRef") == field(write.new, "roleRef") && field(old, "subjects") == field(write.new, "subjects"))
    {
        return Ok(());
    }
    let text = |field: &str| write.new.pointer(&format!("/roleRef/{field}")).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (text("kind"), text("name"));
    let role = GroupResource::new(GROUP, if kind == "Role" { "roles" } else { "clusterroles" });
    if may(authorizer, user, "bind", &role, write.namespace, name, view) {
        return Ok(());
    }
    match authorizer.rbac.role_rules(kind, write.namespace, name, view) {
        Some(rules) => confirm(authorizer, user, write.namespace, &rules, view),
        None => Err(EscalationError::RoleNotFound { kind: kind.to_lowercase(), name: name.to_owned() }),
    }
}

fn may(
    authorizer: &Authorizer,
    user: &UserInfo,
    verb: &str,
    resource: &GroupResource,
    namespace: &str,
    name: &str,
    view: &dyn View,
) -> bool {
    let attributes = Attributes {
        verb: verb.to_owned(),
        group: resource.group.clone(),
        version: "*".to_owned(),
        resource: resource.resource.clone(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    };
    authorizer.authorize(user, &attributes, view).is_allowed()
}

fn confirm(authorizer: &Authorizer, user: &UserInfo, namespace: &str, wanted: &[Rule], view: &dyn View) -> Result<(), EscalationError> {
    let (own, errors) = authorizer.rbac.rules_for(user, namespace, view);
    let missing: Vec<Rule> = wanted.iter().flat_map(Rule::singles).filter(|single| !own.iter().any(|rule| rule.covers(single))).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut described: Vec<String> = compact(missing).iter().map(Rule::describe).collect();
    described.sort();
    described.dedup();
    let user = user.clone();
    Err(EscalationError::NotHeld { user: Box::new(user), rules: described, errors })
}

/// Single rules that differ in the verb alone, put together.
fn compact(singles: Vec<Rule>) -> Vec<Rule> {
    let mut merged: BTreeMap<Rule, Vec<String>> = BTreeMap::new();
    for single in singles {
        let verbs = merged.entry(Rule { verbs: Vec::new(), ..single.clone() }).or_default();
        verbs.extend(single.verbs.into_iter().filter(|v| !verbs.contains(v)).collect::<Vec<_>>());
    }
    merged.into_iter().map(|(rule, verbs)| Rule { verbs, ..rule }).collect()
}
