//! A score plugin with the weight that a profile gives it.

use crate::{CycleState, NodeInfo, Normalization, Plugin, PodChange, PodInfo, Scope, ScorePlugin, Snapshot};

/// A score plugin with another weight. All other answers are those of the plugin.
pub struct Weighted {
    plugin: Box<dyn ScorePlugin>,
    weight: i64,
}

impl Weighted {
    /// Gives the plugin this weight.
    pub fn new(plugin: Box<dyn ScorePlugin>, weight: i64) -> Self {
        Self { plugin, weight }
    }
}

impl Plugin for Weighted {
    fn name(&self) -> &'static str {
        self.plugin.name()
    }

    fn scope(&self) -> Scope {
        self.plugin.scope()
    }
}

impl ScorePlugin for Weighted {
    fn weight(&self) -> i64 {
        self.weight
    }

    fn scope_for(&self, state: &CycleState, pod: &PodInfo) -> Scope {
        self.plugin.scope_for(state, pod)
    }

    fn count_pods(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) {
        self.plugin.count_pods(state, pod, snapshot);
    }

    fn pod_changed(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot, change: PodChange<'_>) {
        self.plugin.pod_changed(state, pod, snapshot, change);
    }

    fn read_snapshot(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) {
        self.plugin.read_snapshot(state, pod, snapshot);
    }

    fn pre_score(&self, state: &mut CycleState, pod: &PodInfo, feasible: &[&NodeInfo]) -> bool {
        self.plugin.pre_score(state, pod, feasible)
    }

    fn score(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        self.plugin.score(state, pod, node)
    }

    fn normalization(&self) -> Normalization {
        self.plugin.normalization()
    }
}
