//! A PodDisruptionBudget reduced to what a preemption depends on.

use std::collections::BTreeSet;

use api_model::selector::Selector;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::PodInfo;

/// How many of the Pods that a budget selects may be disrupted.
#[derive(Clone, Debug)]
pub struct DisruptionBudget {
    /// Upstream's `disruptionsAllowed`.
    pub allowed: i32,
    namespace: String,
    /// A budget without a selector selects no Pod, one with an empty selector all.
    selector: Selector,
    /// The names of the Pods whose disruption the budget counts already.
    disrupted: BTreeSet<String>,
}

impl DisruptionBudget {
    /// Copies what a preemption needs from the PodDisruptionBudget.
    pub fn new(budget: &PodDisruptionBudget) -> Self {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        let status = budget.status.as_ref();
        Self {
            allowed: status.and_then(|status| status.disruptions_allowed).unwrap_or_default(),
            namespace: budget.metadata.namespace.clone().unwrap_or_default(),
            selector: Selector::typed(selector),
            disrupted: status.and_then(|status| status.disrupted_pods.as_ref()).into_iter().flat_map(|pods| pods.keys().cloned()).collect(),
        }
    }

    /// Whether a disruption of the Pod uses up one that the budget allows.
    pub fn counts(&self, pod: &PodInfo) -> bool {
        pod.namespace == self.namespace && self.selector.matches_map(&pod.labels) && !self.disrupted.contains(&pod.name)
    }
}
