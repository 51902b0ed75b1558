//! ClusterRole aggregation: a ClusterRole with an `aggregationRule` has the rules of all
//! ClusterRoles that its selectors find.
//!
//! Watches ClusterRoles; writes the `rules` of aggregated ClusterRoles and nothing else.

use std::sync::Arc;

use api_client::informer::{Change, Informer, ObjectKey};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use serde_json::json;

use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, writes};

/// The controller; its keys are ClusterRoles' names.
pub struct Aggregation {
    client: kube::Client,
    roles: Informer<ClusterRole>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("ClusterRoleAggregator"));
    let roles = context.informer::<ClusterRole>();
    let role_cache = roles.clone();
    // Any role may be, or have been, part of any aggregated role.
    context.feed(&queue, move |_: &Change<ClusterRole>| {
        let aggregated = role_cache.list().into_iter().filter(|role| role.aggregation_rule.is_some());
        aggregated.map(|role| meta::name(&role.metadata).to_owned()).collect()
    });
    context.run(Arc::new(Aggregation { client: context.client(), roles }), queue);
}

/// The rules that `role` should have: the rules of the selected roles, in the order of their names, without duplicates.
fn aggregated(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Option<Vec<PolicyRule>> {
    let rule = role.aggregation_rule.as_ref()?;
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in rule.cluster_role_selectors.iter().flatten().map(meta::selector) {
        for other in all {
            if other.metadata.name == role.metadata.name || !meta::matches(&selector, other.metadata.labels.as_ref()) {
                continue;
            }
            for rule in other.rules.iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    Some(rules)
}

impl Controller for Aggregation {
    const NAME: &'static str = "clusterrole-aggregation-controller";
    const WORKERS: usize = 1;
    type Key = String;

    async fn reconcile(&self, key: &String) -> Result<Next, Failure> {
        let Some(role) = self.roles.get(&ObjectKey::new("", key)) else { return Ok(Next::OnChange) };
        if let Some(rules) = aggregated(&role, &self.roles.list())
            && role.rules.as_deref().unwrap_or_default() != rules
        {
            writes::patch(&self.client, role.as_ref(), json!({"rules": rules})).await?;
        }
        Ok(Next::OnChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn role(name: &str, labels: Value, resources: &[&str]) -> Arc<ClusterRole> {
        let rules: Vec<Value> = resources.iter().map(|r| json!({"apiGroups": [""], "resources": [r], "verbs": ["get"]})).collect();
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "rules": rules})).expect("a ClusterRole"))
    }

    #[test]
    fn rules_are_gathered_by_label_once_each() {
        let all = vec![
            role("a", json!({"to-view": "true"}), &["pods", "services"]),
            role("b", json!({"to-view": "true"}), &["pods", "events"]),
            role("c", json!({}), &["secrets"]),
        ];
        let mut view = role("view", json!({"to-view": "true"}), &["own"]).as_ref().clone();
        assert_eq!(aggregated(&view, &all), None);
        view.aggregation_rule =
            serde_json::from_value(json!({"clusterRoleSelectors": [{"matchLabels": {"to-view": "true"}}]})).expect("a rule");
        let rules = aggregated(&view, &all).expect("aggregated");
        let resources: Vec<&str> = rules.iter().flat_map(|rule| rule.resources.iter().flatten()).map(String::as_str).collect();
        assert_eq!(resources, ["pods", "services", "events"]);
    }
}
