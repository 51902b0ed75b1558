//! The roles and bindings that a cluster has from its first moment: upstream's bootstrap policy.

use std::sync::LazyLock;

use serde_json::Value;

use crate::authorize::rule::Rule;

/// Every bootstrap ClusterRole, ClusterRoleBinding, Role and RoleBinding, roles first.
pub fn objects() -> Vec<Value> {
    Vec::new()
}

/// What every node may do.
pub fn node_rules() -> &'static [Rule] {
    static RULES: LazyLock<Vec<Rule>> = LazyLock::new(Vec::new);
    &RULES
}
