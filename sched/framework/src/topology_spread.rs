//! The topology spread constraints of a Pod, with the selectors parsed.

use std::collections::BTreeMap;

use api_model::selector::{Requirement, Selector};
use k8s_openapi::api::core::v1::{Pod, TopologySpreadConstraint};

/// A constraint.
#[derive(Clone, Debug, PartialEq)]
pub struct TopologySpread {
    /// The key of the node label that names the topology domain.
    pub topology_key: String,
    /// The highest number of Pods that a domain may have more than the emptiest domain.
    pub max_skew: i64,
    /// With fewer domains than this, the emptiest domain counts as empty.
    pub min_domains: i64,
    /// Whether a node that breaks the constraint is ruled out (`DoNotSchedule`); if not, it has a lower score.
    pub is_required: bool,
    /// Whether a node must have the label of the constraint to be ranked by it.
    pub requires_label: bool,
    /// Whether only the nodes count that meet the node selector and the node affinity of the Pod.
    pub honors_node_affinity: bool,
    /// Whether only the nodes count whose taints the Pod tolerates.
    pub honors_taints: bool,
    selector: Selector,
}

impl TopologySpread {
    /// The constraints of the Pod.
    pub fn of_pod(pod: &Pod) -> Vec<Self> {
        let none = BTreeMap::new();
        let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
        let constraints = pod.spec.as_ref().and_then(|spec| spec.topology_spread_constraints.as_ref());
        constraints.into_iter().flatten().map(|constraint| Self::new(constraint, labels)).collect()
    }

    /// The constraints of Pods that have none: upstream's `systemDefaultConstraints`.
    pub fn system_defaults(selector: &Selector) -> Vec<Self> {
        let constraint = |(topology_key, max_skew): (&str, i64)| Self {
            topology_key: topology_key.to_owned(),
            max_skew,
            min_domains: 1,
            is_required: false,
            requires_label: false,
            honors_node_affinity: true,
            honors_taints: false,
            selector: selector.clone(),
        };
        [("kubernetes.io/hostname", 3), ("topology.kubernetes.io/zone", 5)].map(constraint).into()
    }

    /// A default constraint with the selector of a Pod's workload.
    pub fn with_selector(constraint: &TopologySpreadConstraint, selector: &Selector) -> Self {
        Self { selector: selector.clone(), ..Self::new(constraint, &BTreeMap::new()) }
    }

    /// `matchLabelKeys` adds the Pod's own values of these labels to the selector.
    fn new(constraint: &TopologySpreadConstraint, labels: &BTreeMap<String, String>) -> Self {
        let own = constraint.match_label_keys.iter().flatten().filter_map(|key| Some((key, labels.get(key)?)));
        let selector = own.fold(Selector::typed(constraint.label_selector.as_ref()), |selector, (key, value)| {
            selector.and(Requirement::In(key.clone(), vec![value.clone()]))
        });
        Self {
            topology_key: constraint.topology_key.clone(),
            max_skew: i64::from(constraint.max_skew),
            min_domains: i64::from(constraint.min_domains.unwrap_or(1)),
            requires_label: true,
            is_required: constraint.when_unsatisfiable == "DoNotSchedule",
            honors_node_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honors_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
            selector,
        }
    }

    /// Whether the constraint selects a Pod with these labels of its own namespace.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.matches_map(labels)
    }
}
