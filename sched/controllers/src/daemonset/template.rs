//! The Pods of a DaemonSet: the template with the node in its affinity, the tolerations that every daemon has, and the
//! revision's hash.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::meta;
use crate::revisions::REVISION_LABEL;

/// The generation of a DaemonSet's template, which the API server counts.
const GENERATION: &str = "deprecated.daemonset.template.generation";
/// The same as a label of Pods.
pub const GENERATION_LABEL: &str = "pod-template-generation";
/// The field by which the affinity selects the node.
const NODE_NAME: &str = "metadata.name";
/// Taints that no daemon minds, with their effects.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// A daemon of the node's own network starts before the network is there.
const OF_HOST_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// The generation of the template; `None` without one that is readable.
pub fn generation(set: &DaemonSet) -> Option<i64> {
    meta::annotation(&set.metadata, GENERATION)?.parse().ok()
}

/// Adds the tolerations that every daemon has.
pub fn add_tolerations(spec: &mut PodSpec) {
    let host_network = Some(OF_HOST_NETWORK).filter(|_| spec.host_network == Some(true));
    let tolerations = spec.tolerations.get_or_insert_default();
    for (key, effect) in TOLERATED.into_iter().chain(host_network) {
        let toleration = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
}

/// A Pod for a node. The scheduler binds it; no other node satisfies its affinity.
pub fn pod(set: &DaemonSet, node: &str, hash: &str) -> Pod {
    let from = set.spec.template.metadata.clone().unwrap_or_default();
    let mut labels = from.labels.unwrap_or_default();
    if let Some(generation) = generation(set) {
        labels.insert(GENERATION_LABEL.to_owned(), generation.to_string());
    }
    labels.insert(REVISION_LABEL.to_owned(), hash.to_owned());
    let mut spec = set.spec.template.spec.clone().unwrap_or_default();
    add_tolerations(&mut spec);
    let field = NodeSelectorRequirement { key: NODE_NAME.to_owned(), operator: "In".to_owned(), values: Some(vec![node.to_owned()]) };
    let term = NodeSelectorTerm { match_fields: Some(vec![field]), match_expressions: None };
    let affinity = spec.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    affinity.required_during_scheduling_ignored_during_execution = Some(NodeSelector { node_selector_terms: vec![term] });
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", meta::name(&set.metadata))),
            namespace: set.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: from.annotations,
            finalizers: from.finalizers,
            owner_references: Some(vec![meta::controller_reference(set)]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

/// The node that a Pod is on or waits for.
pub fn target_node(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    if let Some(node) = spec.node_name.as_deref().filter(|node| !node.is_empty()) {
        return Some(node);
    }
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let mut fields = terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let field = fields.find(|field| field.key == NODE_NAME && field.operator == "In")?;
    field.values.as_ref()?.first().map(String::as_str)
}
