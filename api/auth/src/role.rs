//! Stored roles: their API group, and the effective rules of a ClusterRole.

use std::collections::BTreeSet;
use std::sync::Arc;

use api_model::meta;
use api_model::selector::Selector;
use serde_json::Value;

use crate::rule::Rule;

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// The effective rules of a ClusterRole: its own rules, or the union of the effective rules of the roles that it
/// aggregates.
pub fn effective(role: &Value, cluster_roles: &[Arc<Value>]) -> Vec<Rule> {
    let mut rules = Vec::new();
    collect(role, cluster_roles, &mut BTreeSet::new(), &mut rules);
    rules
}

fn collect(role: &Value, cluster_roles: &[Arc<Value>], visited: &mut BTreeSet<String>, rules: &mut Vec<Rule>) {
    if !visited.insert(meta::name(role).to_owned()) {
        return;
    }
    let Some(aggregation) = role.get("aggregationRule").filter(|a| !a.is_null()) else {
        for rule in Rule::of_role(role) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        return;
    };
    for selector in aggregation.get("clusterRoleSelectors").and_then(Value::as_array).into_iter().flatten() {
        // Validation rejects a selector that does not parse; it selects nothing here.
        let Ok(selector) = Selector::from_label_selector(Some(selector)) else { continue };
        for other in cluster_roles.iter().filter(|r| selector.matches(r)) {
            collect(other, cluster_roles, visited, rules);
        }
    }
}
