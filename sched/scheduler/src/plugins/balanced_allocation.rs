//! Prefers nodes whose resources, CPU and memory by default, would be used to the same share (`NodeResourcesBalancedAllocation`).

use sched_framework::{CycleState, NodeInfo, Plugin, PodInfo, SCORE_MAX, Scope, ScorePlugin, Snapshot};

use super::resource_allocation::{DeviceAmounts, amounts};
use crate::config::{NodeResourcesBalancedAllocationArgs, ResourceSpec};

const NAME: &str = "NodeResourcesBalancedAllocation";

pub(crate) struct BalancedAllocation {
    resources: Vec<ResourceSpec>,
    devices: DeviceAmounts,
}

impl BalancedAllocation {
    pub(super) fn new(args: &NodeResourcesBalancedAllocationArgs) -> Self {
        Self { resources: args.resources.clone(), devices: DeviceAmounts::new(NAME) }
    }
}

impl Plugin for BalancedAllocation {
    fn name(&self) -> &'static str {
        NAME
    }
}

impl ScorePlugin for BalancedAllocation {
    fn read_snapshot(&self, state: &mut CycleState, _pod: &PodInfo, snapshot: &Snapshot) {
        self.devices.read(state, snapshot, self.resources.iter().map(|resource| resource.name.as_str()));
    }

    fn scope_for(&self, state: &CycleState, _pod: &PodInfo) -> Scope {
        self.devices.scope(state)
    }

    /// A Pod without requests does not change the shares.
    fn pre_score(&self, state: &mut CycleState, pod: &PodInfo, feasible: &[&NodeInfo]) -> bool {
        self.devices.count(state, feasible);
        self.resources.iter().any(|resource| pod.requests.get(&resource.name) > 0)
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "shares between 0 and 1, where a float is exact enough"
    )]
    fn score(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let of_node = |resource: &str| amounts(resource, node, &node.requested, &pod.requests);
        let of_devices = |resource: &str| self.devices.amounts(state, resource, node, &pod.requests);
        let amounts = self.resources.iter().filter_map(|resource| of_node(&resource.name).or_else(|| of_devices(&resource.name)));
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
