//! Prefers nodes whose resources, CPU and memory by default, would be used to the same share (`NodeResourcesBalancedAllocation`).

use sched_framework::{CycleState, NodeInfo, Plugin, PodInfo, SCORE_MAX, ScorePlugin};

use super::resource_allocation::amounts;
use crate::config::{NodeResourcesBalancedAllocationArgs, ResourceSpec};

pub(crate) struct BalancedAllocation {
    resources: Vec<ResourceSpec>,
}

impl BalancedAllocation {
    pub(super) fn new(args: &NodeResourcesBalancedAllocationArgs) -> Self {
        Self { resources: args.resources.clone() }
    }
}

impl Plugin for BalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }
}

impl ScorePlugin for BalancedAllocation {
    /// A Pod without requests does not change the shares.
    fn pre_score(&self, _state: &mut CycleState, pod: &PodInfo, _feasible: &[&NodeInfo]) -> bool {
        self.resources.iter().any(|resource| pod.requests.get(&resource.name) > 0)
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "shares between 0 and 1, where a float is exact enough"
    )]
    fn score(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let amounts = self.resources.iter().filter_map(|resource| amounts(&resource.name, node, &node.requested, &pod.requests));
        let shares: Vec<f64> = amounts.map(|amount| (amount.requested as f64 / amount.allocatable as f64).min(1.0)).collect();
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        let deviation = match shares.as_slice() {
            [] | [_] => 0.0,
            // Half of the difference, without the rounding of the formula.
            [one, other] => (one - other).abs() / 2.0,
            _ => (shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / shares.len() as f64).sqrt(),
        };
        Some(((1.0 - deviation) * SCORE_MAX as f64) as i64)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plugins::fixtures::{arguments, node, pod, requesting};

    #[test]
    fn the_resources_can_be_chosen() {
        let requests = json!({"cpu": "4", "memory": "0", "example.com/gpu": "2"});
        let wanting = pod("p", json!({"containers": [{"name": "c", "resources": {"requests": requests}}]}));
        let gpus = node("n", json!({"status": {"allocatable": {"example.com/gpu": "4"}}}));
        let score = |resources: &[&str]| {
            let resources: Vec<_> = resources.iter().map(|name| json!({"name": name})).collect();
            let args = arguments("NodeResourcesBalancedAllocation", &json!({"resources": resources}));
            let plugin = BalancedAllocation::new(&args.node_resources_balanced_allocation);
            let prefers = plugin.pre_score(&mut CycleState::default(), &wanting, &[]);
            prefers.then(|| plugin.score(&CycleState::default(), &wanting, &gpus)).flatten()
        };
        assert_eq!(score(&["cpu", "example.com/gpu"]), Some(75));
        assert_eq!(score(&["cpu", "memory", "example.com/gpu"]), Some(59), "the deviation of 1, 0 and 0.5");
        assert_eq!((score(&["cpu"]), score(&["memory"])), (Some(100), None));
    }

    #[test]
    fn even_use_scores_best() {
        let score = |cpu: &str, memory: &str| {
            let plugin = BalancedAllocation::new(&NodeResourcesBalancedAllocationArgs::default());
            plugin.score(&CycleState::default(), &requesting("p", cpu, memory), &node("n", json!({})))
        };
        assert_eq!((score("2", "4Gi"), score("4", "0"), score("2", "2Gi")), (Some(100), Some(50), Some(87)));
    }
}
