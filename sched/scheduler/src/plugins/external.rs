//! A plugin that is not part of the program, at the extension points of a profile. One plugin may be at several of them.

use std::sync::Arc;

use sched_framework::{
    ClusterEvent, CycleState, ExternalPlugin, FilterPlugin, NodeInfo, Normalization, Permit, PermitCandidate, PermitPlugin, Plugin,
    PodInfo, Scope, ScorePlugin, Status,
};

/// The plugin, shared by the extension points. Every answer is the plugin's.
pub(super) struct External(pub Arc<dyn ExternalPlugin>);

impl Plugin for External {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn scope(&self) -> Scope {
        self.0.scope()
    }
}

impl FilterPlugin for External {
    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        self.0.filter(state, pod, node)
    }

    fn events_to_register(&self) -> &'static [ClusterEvent] {
        self.0.events_to_register()
    }
}

impl ScorePlugin for External {
    fn pre_score(&self, state: &mut CycleState, pod: &PodInfo, feasible: &[&NodeInfo]) -> bool {
        self.0.pre_score(state, pod, feasible)
    }

    fn score(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        self.0.score(state, pod, node)
    }

    fn normalization(&self) -> Normalization {
        self.0.normalization()
    }
}

impl PermitPlugin for External {
    fn permit(&self, candidates: &[PermitCandidate<'_>]) -> Vec<Permit> {
        self.0.permit(candidates)
    }
}
