//! ValidatingAdmissionPolicy status: `observedGeneration` says up to which generation a policy was looked at.
//!
//! Watches ValidatingAdmissionPolicies; writes `status.observedGeneration` and nothing else. Expressions are
//! compiled by the API server before a policy is stored; they are not held against the schemas of the kinds
//! that the policy matches, so `typeChecking` stays away rather than say that nothing was found.

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use serde_json::json;

use crate::failure::{Failure, gone_is_fine};
use crate::parts::Parts;
use crate::work::{Cached, Change, Controller, Next, ObjectKey, Queue, Store};
use crate::{meta, writes};

impl Cached for ValidatingAdmissionPolicy {}

/// The controller; its keys are policies' names.
pub struct PolicyStatus {
    client: kube::Client,
    policies: Arc<Store<ValidatingAdmissionPolicy>>,
}

/// Sets the controller up.
pub fn build(parts: &mut Parts) {
    let queue = Arc::new(Queue::default());
    let policies = parts.feed(&queue, |change: &Change<ValidatingAdmissionPolicy>| {
        change.new.iter().map(|policy| meta::name(&policy.metadata).to_owned()).collect()
    });
    parts.run(Arc::new(PolicyStatus { client: parts.client(), policies }), queue);
}

/// The generation to be written, where the status is behind.
fn plan(policy: &ValidatingAdmissionPolicy) -> Option<i64> {
    let observed = policy.status.as_ref().and_then(|status| status.observed_generation).unwrap_or_default();
    policy.metadata.generation.filter(|generation| *generation > observed)
}

impl Controller for PolicyStatus {
    const NAME: &'static str = "validatingadmissionpolicy-status-controller";
    const WORKERS: usize = 1;
    type Key = String;

    async fn reconcile(&self, key: &String) -> Result<Next, Failure> {
        let Some(policy) = self.policies.get(&ObjectKey::new("", key)) else { return Ok(Next::OnChange) };
        if let Some(generation) = plan(&policy) {
            gone_is_fine(writes::patch_status(&self.client, policy.as_ref(), json!({"observedGeneration": generation})).await)?;
        }
        Ok(Next::OnChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_status_that_is_behind_is_written() {
        let policy = |status: serde_json::Value| {
            let policy = json!({"metadata": {"name": "p", "generation": 2}, "status": status});
            plan(&serde_json::from_value(policy).expect("a policy"))
        };
        assert_eq!(policy(json!({})), Some(2));
        assert_eq!(policy(json!({"observedGeneration": 1})), Some(2));
        assert_eq!(policy(json!({"observedGeneration": 2})), None);
    }
}
