//! Whether a node has what the node selector and the node affinity of a Pod require. The scheduler and the DaemonSet controller
//! judge alike.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

use crate::PodInfo;

/// Whether the node of that name and labels meets the node selector and the required node affinity of the Pod.
pub fn selects_node(pod: &PodInfo, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let affinity = pod.node_affinity.as_ref();
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    pod.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        && required.is_none_or(|selector| selector_matches(selector, name, labels))
}

/// The names of the only nodes that the required node affinity of the Pod allows, if each of its terms names nodes; `None` if
/// not. The Pods of a DaemonSet name one node each.
pub fn selects_names(pod: &PodInfo) -> Option<BTreeSet<String>> {
    let selector = pod.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref()?;
    let named = |term: &NodeSelectorTerm| {
        let fields = term.match_fields.as_deref().unwrap_or_default();
        let mut names = fields.iter().filter(|field| field.key == "metadata.name" && field.operator == "In").map(|field| {
            let values = field.values.as_deref().unwrap_or_default();
            values.iter().cloned().collect::<BTreeSet<_>>()
        });
        let first = names.next()?;
        Some(names.fold(first, |all, names| all.intersection(&names).cloned().collect()))
    };
    let of_terms: Option<Vec<_>> = selector.node_selector_terms.iter().map(named).collect();
    of_terms.filter(|names| !names.is_empty()).map(|names| names.into_iter().flatten().collect())
}

/// Whether the node meets one of the selector's terms.
pub fn selector_matches(selector: &NodeSelector, name: &str, labels: &BTreeMap<String, String>) -> bool {
    selector.node_selector_terms.iter().any(|term| term_matches(term, name, labels))
}

/// Whether the node meets all requirements of the term. A term without requirements matches no node.
pub fn term_matches(term: &NodeSelectorTerm, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    expressions.iter().all(|r| holds(r, labels.get(&r.key).map(String::as_str)))
        && fields.iter().all(|r| r.key == "metadata.name" && holds(r, Some(name)))
}

fn holds(requirement: &NodeSelectorRequirement, label: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = |value: &str| values.iter().any(|v| v == value);
    let number = |text: &str| text.parse::<i64>().ok();
    let bound = values.first().and_then(|v| number(v));
    match requirement.operator.as_str() {
        "In" => label.is_some_and(listed),
        "NotIn" => label.is_none_or(|value| !listed(value)),
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        "Gt" => label.and_then(number).zip(bound).is_some_and(|(value, bound)| value > bound),
        "Lt" => label.and_then(number).zip(bound).is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}
