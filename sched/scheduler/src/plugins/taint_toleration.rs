//! Rules out nodes with taints that the Pod does not tolerate, and prefers nodes with fewer `PreferNoSchedule` taints that
//! the Pod does not tolerate.

use sched_framework::{ClusterEvent, CycleState, FilterPlugin, NodeInfo, Normalization, Plugin, PodInfo, ScorePlugin, Status, tolerates};

pub(crate) struct TaintToleration;

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }
}

/// Whether the Pod tolerates all taints of the node that keep Pods away.
pub(super) fn tolerates_node(pod: &PodInfo, node: &NodeInfo) -> bool {
    let mut hard = node.taints.iter().filter(|taint| taint.effect != "PreferNoSchedule");
    hard.all(|taint| tolerates(&pod.tolerations, taint))
}

impl FilterPlugin for TaintToleration {
    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        Status::unless(tolerates_node(pod, node), "node(s) had untolerated taint(s)")
    }

    fn events_to_register(&self) -> &'static [ClusterEvent] {
        &[ClusterEvent::NodeAdd, ClusterEvent::UpdateNodeTaint]
    }
}

impl ScorePlugin for TaintToleration {
    fn score(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let intolerable = node.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule" && !tolerates(&pod.tolerations, taint));
        i64::try_from(intolerable.count()).ok()
    }

    fn normalization(&self) -> Normalization {
        Normalization::HighestReversed
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::plugins::fixtures::{node, pod};

    #[test]
    fn tolerations_cover_taints_as_upstream_documents() {
        let taint = json!({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"});
        for (toleration, wanted) in [
            (json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}), true),
            (json!({"key": "dedicated", "value": "gpu"}), true),
            (json!({"key": "dedicated", "operator": "Exists"}), true),
            (json!({"operator": "Exists"}), true),
            (json!({"key": "dedicated", "value": "other"}), false),
            (json!({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "other", "operator": "Exists"}), false),
        ] {
            let node = node("n", json!({"spec": {"taints": [taint]}}));
            let pod = pod("p", json!({"tolerations": [toleration]}));
            let fits = TaintToleration.filter(&CycleState::default(), &pod, &node) == Status::Success;
            assert_eq!(fits, wanted, "{toleration}");
        }
    }

    #[test]
    fn untolerated_preferences_only_cost_score() {
        let soft = node("n", json!({"spec": {"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}}));
        let plain = pod("p", Value::Object(serde_json::Map::new()));
        assert_eq!(TaintToleration.filter(&CycleState::default(), &plain, &soft), Status::Success);
        let scores = [TaintToleration.score(&CycleState::default(), &plain, &soft), Some(0)];
        assert_eq!(TaintToleration.normalization().scale(&scores), [0, 100]);
    }
}
