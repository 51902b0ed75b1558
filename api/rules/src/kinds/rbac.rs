//! Role, ClusterRole, RoleBinding and ClusterRoleBinding.

use serde_json::Value;

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{each, fill, inner, text};
use crate::format;

/// The rules of Roles.
pub const ROLE: Rules = Rules::new(|_| {}, validate_role, |_, new, _, checks| validate_role(new, checks));
/// The rules of ClusterRoles.
pub const CLUSTER_ROLE: Rules = Rules::new(|_| {}, validate_cluster_role, |_, new, _, checks| validate_cluster_role(new, checks));
/// The rules of RoleBindings.
pub const BINDING: Rules = Rules::new(default_binding, validate_binding, update_binding);
/// The rules of ClusterRoleBindings.
pub const CLUSTER_BINDING: Rules = Rules::new(default_binding, validate_cluster_binding, update_cluster_binding);

const GROUP: &str = "rbac.authorization.k8s.io";

fn validate_role(role: &At<'_>, checks: &mut Checks) {
    for rule in role.get("rules").items() {
        policy_rule(&rule, true, checks);
    }
}

fn validate_cluster_role(role: &At<'_>, checks: &mut Checks) {
    for rule in role.get("rules").items() {
        policy_rule(&rule, false, checks);
    }
    let aggregation = role.get("aggregationRule");
    if !aggregation.exists() {
        return;
    }
    let selectors = aggregation.get("clusterRoleSelectors");
    if selectors.len() == 0 {
        checks.required(&selectors, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    for selector in selectors.items() {
        checks.label_selector(&selector);
    }
}

fn policy_rule(rule: &At<'_>, namespaced: bool, checks: &mut Checks) {
    let (verbs, groups, resources) = (rule.get("verbs"), rule.get("apiGroups"), rule.get("resources"));
    if verbs.len() == 0 {
        checks.required(&verbs, "verbs must contain at least one value");
    }
    let urls = rule.get("nonResourceURLs");
    if urls.len() > 0 {
        if namespaced {
            checks.invalid(&urls, "namespaced rules cannot apply to non-resource URLs");
        }
        if groups.len() > 0 || resources.len() > 0 || rule.get("resourceNames").len() > 0 {
            checks.invalid(&urls, "rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if groups.len() == 0 {
        checks.required(&groups, "resource rules must supply at least one api group");
    }
    if resources.len() == 0 {
        checks.required(&resources, "resource rules must supply at least one resource");
    }
}

fn default_binding(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    if let Some(role) = inner(fields, "roleRef") {
        fill(role, "apiGroup", GROUP);
    }
    for subject in each(fields, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            fill(subject, "apiGroup", GROUP);
        }
    }
}

fn validate_binding(binding: &At<'_>, checks: &mut Checks) {
    role_ref(&binding.get("roleRef"), &["ClusterRole", "Role"], checks);
    subjects(binding, true, checks);
}

fn validate_cluster_binding(binding: &At<'_>, checks: &mut Checks) {
    role_ref(&binding.get("roleRef"), &["ClusterRole"], checks);
    subjects(binding, false, checks);
}

fn role_ref(role: &At<'_>, kinds: &[&str], checks: &mut Checks) {
    if role.get("apiGroup").text() != GROUP {
        checks.not_supported(&role.get("apiGroup"), &[GROUP]);
    }
    if !kinds.contains(&role.get("kind").text()) {
        checks.not_supported(&role.get("kind"), kinds);
    }
    let name = role.get("name");
    if name.text().is_empty() {
        checks.required(&name, "");
    } else {
        checks.format(&name, format::path_segment(name.text()));
    }
}

/// A ServiceAccount without a namespace is valid only in a RoleBinding.
fn subjects(binding: &At<'_>, namespaced: bool, checks: &mut Checks) {
    for subject in binding.get("subjects").items() {
        let (kind, name, group) = (subject.get("kind"), subject.get("name"), subject.get("apiGroup"));
        if name.text().is_empty() {
            checks.required(&name, "");
        }
        match kind.text() {
            "ServiceAccount" => {
                if !name.text().is_empty() {
                    checks.dns_subdomain(&name);
                }
                if !group.text().is_empty() {
                    checks.not_supported(&group, &[""]);
                }
                if !namespaced && subject.get("namespace").text().is_empty() {
                    checks.required(&subject.get("namespace"), "");
                }
            }
            "User" | "Group" if group.text() != GROUP => checks.not_supported(&group, &[GROUP]),
            "User" | "Group" => {}
            _ => checks.not_supported(&kind, &["ServiceAccount", "User", "Group"]),
        }
    }
}

fn same_role(new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    if !new.get("roleRef").same(&old.get("roleRef")) {
        checks.invalid(&new.get("roleRef"), "cannot change roleRef");
    }
}

fn update_binding(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    validate_binding(new, checks);
    same_role(new, old, checks);
}

fn update_cluster_binding(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    validate_cluster_binding(new, checks);
    same_role(new, old, checks);
}
