//! The affinity and anti-affinity of a Pod to other Pods, with the selectors parsed.

use std::collections::{BTreeMap, BTreeSet};

use api_model::selector::Selector;
use k8s_openapi::api::core::v1::{self as core, Pod};

use crate::NamespaceLabels;

/// The terms of a Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodAffinityTerms {
    /// A node must have a Pod of each of these terms in its topology domain.
    pub affinity: Vec<PodAffinityTerm>,
    /// A node must not have a Pod of any of these terms in its topology domain.
    pub anti_affinity: Vec<PodAffinityTerm>,
    /// Pods of these terms in its topology domain add to the score of a node; anti-affinity has negative weights.
    pub preferred: Vec<(PodAffinityTerm, i64)>,
}

/// A term: Pods by namespace and labels, and the node label that names the topology domain. The selector has what
/// `matchLabelKeys` and `mismatchLabelKeys` require: the API server adds that when it creates the Pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodAffinityTerm {
    /// The key of the node label.
    pub topology_key: String,
    namespaces: BTreeSet<String>,
    namespace_selector: Selector,
    selector: Selector,
}

impl PodAffinityTerms {
    /// The terms of the Pod.
    pub fn new(pod: &Pod) -> Self {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
        let (together, apart) = (affinity.and_then(|a| a.pod_affinity.as_ref()), affinity.and_then(|a| a.pod_anti_affinity.as_ref()));
        let required = |terms: Option<&Vec<core::PodAffinityTerm>>| {
            terms.into_iter().flatten().map(|term| PodAffinityTerm::new(term, namespace)).collect()
        };
        let preferred = |terms: Option<&Vec<core::WeightedPodAffinityTerm>>, sign: i64| {
            let weighted = |term: &core::WeightedPodAffinityTerm| {
                (PodAffinityTerm::new(&term.pod_affinity_term, namespace), i64::from(term.weight) * sign)
            };
            terms.into_iter().flatten().map(weighted).collect::<Vec<_>>()
        };
        let of_together = preferred(together.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()), 1);
        let of_apart = preferred(apart.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()), -1);
        Self {
            affinity: required(together.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())),
            anti_affinity: required(apart.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())),
            preferred: of_together.into_iter().chain(of_apart).collect(),
        }
    }

    /// Whether the Pod has no term.
    pub fn is_empty(&self) -> bool {
        self.affinity.is_empty() && self.anti_affinity.is_empty() && self.preferred.is_empty()
    }
}

impl PodAffinityTerm {
    /// A term without namespaces and without a namespace selector means the namespace of its own Pod.
    fn new(term: &core::PodAffinityTerm, namespace: &str) -> Self {
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(namespace.to_owned());
        }
        Self {
            topology_key: term.topology_key.clone(),
            namespaces,
            namespace_selector: Selector::typed(term.namespace_selector.as_ref()),
            selector: Selector::typed(term.label_selector.as_ref()),
        }
    }

    /// Whether the term selects a Pod of that namespace with these labels.
    pub fn selects(&self, namespace: &str, labels: &BTreeMap<String, String>, namespaces: &NamespaceLabels) -> bool {
        let is_in_namespace =
            || self.namespaces.contains(namespace) || self.namespace_selector.matches_map(namespaces.of_namespace(namespace));
        self.selector.matches_map(labels) && is_in_namespace()
    }
}
