//! ValidatingAdmissionPolicy status: the type errors of a policy's expressions for the kinds that the policy matches
//! (`typeChecking`), and the generation that was checked (`observedGeneration`).
//!
//! Watches ValidatingAdmissionPolicies; reads the served kinds and their schemas; writes the two fields, by server-side apply,
//! and nothing else. It checks a policy once a generation: later changes of the kinds do not change the status, as upstream.
//! The API server has already checked that each expression compiles.

mod check;
mod kinds;
mod schemas;

use std::collections::BTreeSet;
use std::sync::Arc;

use api_cel::Type;
use api_client::informer::{Change, Informer, ObjectKey};
use k8s_openapi::api::admissionregistration::v1::{ExpressionWarning, ValidatingAdmissionPolicy, ValidatingAdmissionPolicySpec};
use serde_json::{Value, json};

use self::check::Types;
use self::kinds::Gvk;
use crate::context::ControllerContext;
use crate::failure::{Failure, gone_is_fine};
use crate::work::{Controller, Next, WorkQueue};
use crate::{discovery, meta, writes};

/// The field manager of the status, upstream's name.
const FIELD_MANAGER: &str = "validatingadmissionpolicy-status";

/// The controller; its keys are policies' names.
pub struct PolicyStatus {
    client: kube::Client,
    policies: Informer<ValidatingAdmissionPolicy>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("validatingadmissionpolicy-status"));
    let policies = context.feed(&queue, |change: &Change<ValidatingAdmissionPolicy>| {
        change.new.iter().map(|policy| meta::name(&policy.metadata).to_owned()).collect()
    });
    context.run(Arc::new(PolicyStatus { client: context.client(), policies }), queue);
}

/// The generation to check, when the status is behind.
fn due(policy: &ValidatingAdmissionPolicy) -> Option<i64> {
    let observed = policy.status.as_ref().and_then(|status| status.observed_generation).unwrap_or_default();
    policy.metadata.generation.filter(|generation| *generation > observed)
}

/// The status of a checked policy. An empty `typeChecking` says that there are no warnings.
fn status(generation: i64, warnings: &[ExpressionWarning]) -> Value {
    let checked = if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
    json!({"observedGeneration": generation, "typeChecking": checked})
}

impl PolicyStatus {
    /// The types that the expressions are checked with.
    async fn types(&self, spec: &ValidatingAdmissionPolicySpec) -> Result<Types, Failure> {
        let objects = kinds::named(spec, &discovery::every_version(&self.client).await?);
        let params = spec.param_kind.as_ref().map(Gvk::of_params);
        let wanted: BTreeSet<Gvk> = objects.iter().chain(&params).cloned().collect();
        let types = schemas::types(&self.client, &wanted).await?;
        let type_of = |kind: &Gvk| types.get(kind).cloned();
        Ok(Types {
            params: params.as_ref().and_then(type_of).unwrap_or(Type::Dyn),
            objects: objects.into_iter().filter_map(|kind| type_of(&kind).map(|object| (kind, object))).collect(),
        })
    }
}

impl Controller for PolicyStatus {
    const NAME: &'static str = "validatingadmissionpolicy-status-controller";
    const WORKERS: usize = 1;
    type Key = String;

    async fn reconcile(&self, key: &String) -> Result<Next, Failure> {
        let Some(policy) = self.policies.get(&ObjectKey::new("", key)) else { return Ok(Next::OnChange) };
        let (Some(generation), Some(spec)) = (due(&policy), &policy.spec) else { return Ok(Next::OnChange) };
        let types = self.types(spec).await?;
        let spec = spec.clone();
        // A policy may have as many expressions as fit into an object: others get their turn meanwhile.
        let checking = api_tasks::blocking("policy-status/check", move || check::warnings(&spec, &types));
        let warnings = checking.await.map_err(|error| Failure::Unusable { object: format!("policy {key}"), problem: error.to_string() })?;
        gone_is_fine(writes::apply_status(&self.client, policy.as_ref(), FIELD_MANAGER, status(generation, &warnings)).await)?;
        Ok(Next::OnChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_status_that_is_behind_is_written() {
        let policy = |status: Value| {
            let policy = json!({"metadata": {"name": "p", "generation": 2}, "status": status});
            due(&serde_json::from_value(policy).expect("a policy"))
        };
        assert_eq!(policy(json!({})), Some(2));
        assert_eq!(policy(json!({"observedGeneration": 1})), Some(2));
        assert_eq!(policy(json!({"observedGeneration": 2})), None);
    }

    #[test]
    fn a_policy_without_warnings_was_checked_all_the_same() {
        assert_eq!(status(3, &[]), json!({"observedGeneration": 3, "typeChecking": {}}));
        let warning = ExpressionWarning { field_ref: "spec.validations[0].expression".to_owned(), warning: "w".to_owned() };
        assert_eq!(status(3, &[warning])["typeChecking"]["expressionWarnings"][0]["fieldRef"], "spec.validations[0].expression");
    }
}
