//! Node selector and node affinity: required terms rule nodes out, preferred terms add to the score.

use std::collections::BTreeSet;

use sched_framework::{
    ClusterEvent, CycleState, FilterPlugin, NodeInfo, Normalization, Plugin, PodInfo, ScorePlugin, Snapshot, Status, selects_names,
    selects_node, term_matches,
};

pub(crate) struct NodeAffinity;

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }
}

impl FilterPlugin for NodeAffinity {
    fn node_names(&self, pod: &PodInfo) -> Option<BTreeSet<String>> {
        selects_names(pod)
    }

    fn pre_filter(&self, _state: &mut CycleState, pod: &PodInfo, _snapshot: &Snapshot) -> Status {
        Status::unless(selects_names(pod).is_none_or(|names| !names.is_empty()), "pod affinity terms conflict")
    }

    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        Status::unless(selects_node(pod, &node.name, &node.labels), "node(s) didn't match Pod's node affinity/selector")
    }

    fn events_to_register(&self) -> &'static [ClusterEvent] {
        &[ClusterEvent::NodeAdd, ClusterEvent::UpdateNodeLabel]
    }
}

impl ScorePlugin for NodeAffinity {
    fn weight(&self) -> i64 {
        2
    }

    fn pre_score(&self, _state: &mut CycleState, pod: &PodInfo, _feasible: &[&NodeInfo]) -> bool {
        affinity(pod).is_some_and(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref().is_some_and(|p| !p.is_empty()))
    }

    fn score(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let preferred = affinity(pod).and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref());
        let matching = preferred.into_iter().flatten().filter(|term| term_matches(&term.preference, &node.name, &node.labels));
        Some(matching.map(|term| i64::from(term.weight)).sum())
    }

    fn normalization(&self) -> Normalization {
        Normalization::Highest
    }
}

fn affinity(pod: &PodInfo) -> Option<&k8s_openapi::api::core::v1::NodeAffinity> {
    pod.node_affinity.as_ref()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::plugins::fixtures::{node, pod};

    fn required(terms: Value) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    }

    #[test]
    fn selectors_and_terms_rule_nodes_out() {
        let node = node("n1", json!({"metadata": {"labels": {"zone": "a", "gen": "5"}}}));
        let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (spec, wanted) in [
            (json!({}), true),
            (json!({"nodeSelector": {"zone": "a"}}), true),
            (json!({"nodeSelector": {"zone": "b"}}), false),
            (required(json!([expression("zone", "In", &["b", "a"])])), true),
            (required(json!([expression("zone", "NotIn", &["a"])])), false),
            (required(json!([expression("none", "NotIn", &["a"])])), true),
            (required(json!([expression("gen", "Gt", &["4"])])), true),
            (required(json!([expression("gen", "Lt", &["5"])])), false),
            (required(json!([expression("zone", "In", &["b"]), expression("gen", "Exists", &[])])), true),
            (required(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}])), true),
            (required(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}])), false),
            (required(json!([{}])), false),
        ] {
            let fits = NodeAffinity.filter(&CycleState::default(), &pod("p", spec.clone()), &node) == Status::Success;
            assert_eq!(fits, wanted, "{spec}");
        }
    }
}
