//! What the terms of Pods on nodes count.

use api_model::field::{FieldError, Path};
use serde::Deserialize;

use super::Arguments;

/// Upstream's `InterPodAffinityArgs`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct InterPodAffinityArgs {
    /// What a required affinity of a Pod on a node counts for a Pod that it selects.
    pub hard_pod_affinity_weight: i32,
    /// Whether only Pods with preferred terms of their own are scored.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for InterPodAffinityArgs {
    fn default() -> Self {
        Self { hard_pod_affinity_weight: 1, ignore_preferred_terms_of_existing_pods: false }
    }
}

impl Arguments for InterPodAffinityArgs {
    fn complete(&mut self, path: &Path, errors: &mut Vec<FieldError>) {
        let weight = self.hard_pod_affinity_weight;
        if !(0..=100).contains(&weight) {
            errors.push(FieldError::invalid(&path.child("hardPodAffinityWeight"), weight, "not in valid range [0, 100]"));
        }
    }
}
