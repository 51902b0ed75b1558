//! Node selector and node affinity: required terms rule nodes out, preferred terms add to the score.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1;
use sched_framework::{
    ClusterEvent, CycleState, FilterPlugin, NodeInfo, Normalization, Plugin, PodInfo, ScorePlugin, Snapshot, Status, selector_matches,
    selects_names, selects_node, term_matches,
};

use crate::config::NodeAffinityArgs;

pub(crate) struct NodeAffinity {
    /// The affinity that every Pod has beside its own.
    added: Option<v1::NodeAffinity>,
}

impl NodeAffinity {
    pub(super) fn new(args: &NodeAffinityArgs) -> Self {
        Self { added: args.added_affinity().cloned() }
    }

    fn added_allows(&self, node: &NodeInfo) -> bool {
        let required = self.added.as_ref().and_then(|added| added.required_during_scheduling_ignored_during_execution.as_ref());
        required.is_none_or(|selector| selector_matches(selector, &node.name, &node.labels))
    }

    /// The preferred terms of the Pod and the added ones.
    fn preferred<'a>(&'a self, pod: &'a PodInfo) -> impl Iterator<Item = &'a v1::PreferredSchedulingTerm> {
        let affinities = pod.node_affinity.iter().chain(&self.added);
        affinities.flat_map(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten())
    }
}

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
        if !self.added_allows(node) {
            return Status::unless(false, "node(s) didn't match scheduler-enforced node affinity");
        }
        Status::unless(selects_node(pod, &node.name, &node.labels), "node(s) didn't match Pod's node affinity/selector")
    }

    fn events_to_register(&self) -> &'static [ClusterEvent] {
        &[ClusterEvent::NodeAdd, ClusterEvent::UpdateNodeLabel]
    }
}

impl ScorePlugin for NodeAffinity {
    fn pre_score(&self, _state: &mut CycleState, pod: &PodInfo, _feasible: &[&NodeInfo]) -> bool {
        self.preferred(pod).next().is_some()
    }

    fn score(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let matching = self.preferred(pod).filter(|term| term_matches(&term.preference, &node.name, &node.labels));
        Some(matching.map(|term| i64::from(term.weight)).sum())
    }

    fn normalization(&self) -> Normalization {
        Normalization::Highest
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::plugins::fixtures::{arguments, node, pod};

    fn required(terms: Value) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    }

    #[test]
    fn an_added_affinity_holds_beside_that_of_the_pod() {
        let term = |zone: &str| json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
        let preferred = |zone: &str| json!([{"weight": 3, "preference": term(zone)}]);
        let added = json!({
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term("a"), term("b")]},
            "preferredDuringSchedulingIgnoredDuringExecution": preferred("b"),
        });
        let plugin = NodeAffinity::new(&arguments("NodeAffinity", &json!({"addedAffinity": added})).node_affinity);
        let plain = NodeAffinity::new(&NodeAffinityArgs::default());
        let zone = |zone: &str| node(zone, json!({"metadata": {"labels": {"zone": zone}}}));
        let in_b = pod("p", json!({"nodeSelector": {"zone": "b"}}));
        let status = |node: &str| plugin.filter(&CycleState::default(), &in_b, &zone(node));
        assert_eq!(status("a"), Status::unless(false, "node(s) didn't match Pod's node affinity/selector"));
        assert_eq!(status("b"), Status::Success);
        assert_eq!(status("c"), Status::unless(false, "node(s) didn't match scheduler-enforced node affinity"));
        let prefers = |plugin: &NodeAffinity, pod: &PodInfo| plugin.pre_score(&mut CycleState::default(), pod, &[]);
        assert_eq!((prefers(&plugin, &in_b), prefers(&plain, &in_b)), (true, false));
        let own = pod("p", json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred("b")}}}));
        let score = |plugin: &NodeAffinity, pod: &PodInfo| plugin.score(&CycleState::default(), pod, &zone("b"));
        assert_eq!((score(&plugin, &in_b), score(&plugin, &own), score(&plain, &own)), (Some(3), Some(6), Some(3)));
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
            let fits = NodeAffinity::new(&NodeAffinityArgs::default()).filter(&CycleState::default(), &pod("p", spec.clone()), &node)
                == Status::Success;
            assert_eq!(fits, wanted, "{spec}");
        }
    }
}
