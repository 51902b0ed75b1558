//! Prefers nodes whose CPU and memory would be used to the same share (`NodeResourcesBalancedAllocation`).

use sched_framework::{CycleState, NodeInfo, Plugin, PodInfo, SCORE_MAX, ScorePlugin};

pub(crate) struct BalancedAllocation;

impl Plugin for BalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }
}

impl ScorePlugin for BalancedAllocation {
    /// A Pod without requests does not change the shares.
    fn pre_score(&self, _state: &mut CycleState, pod: &PodInfo, _feasible: &[&NodeInfo]) -> bool {
        pod.requests.cpu_milli > 0 || pod.requests.memory_bytes > 0
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "shares between 0 and 1, where a float is exact enough"
    )]
    fn score(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let share = |has: i64, used: i64| if has <= 0 { 0.0 } else { (used as f64 / has as f64).min(1.0) };
        let (has, used, wants) = (&node.allocatable, &node.requested, &pod.requests);
        let cpu = share(has.cpu_milli, used.cpu_milli.saturating_add(wants.cpu_milli));
        let memory = share(has.memory_bytes, used.memory_bytes.saturating_add(wants.memory_bytes));
        // The standard deviation of two shares is half of their difference.
        let deviation = (cpu - memory).abs() / 2.0;
        Some(((1.0 - deviation) * SCORE_MAX as f64) as i64)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plugins::fixtures::{node, requesting};

    #[test]
    fn even_use_scores_best() {
        let score = |cpu: &str, memory: &str| {
            BalancedAllocation.score(&CycleState::default(), &requesting("p", cpu, memory), &node("n", json!({})))
        };
        assert_eq!((score("2", "4Gi"), score("4", "0"), score("2", "2Gi")), (Some(100), Some(50), Some(87)));
    }
}
