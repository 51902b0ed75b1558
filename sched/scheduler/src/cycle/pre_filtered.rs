//! What plugins compute once for Pods that are alike: sums over the Pods of the cluster, above all.

use std::sync::Arc;

use sched_framework::{CycleState, PodChange, PodInfo, Rejection, Snapshot};

use super::recent::Recent;
use crate::plugins::Profile;

/// The state of a Pod's cycle after `pre_filter` and `count_pods`. The cycle of a Pod like it begins with this state: its sums
/// over Pods only have to follow the changes since then.
pub(super) struct PreFiltered {
    pod: Arc<PodInfo>,
    generation: u64,
    next_change: usize,
    state: CycleState,
}

impl Recent<PreFiltered> {
    /// The state for a cycle of the Pod.
    pub fn pre_filter(&mut self, profile: &Profile, pod: &PodInfo, snapshot: &Snapshot) -> Result<CycleState, Rejection> {
        let mut state = self.latest(profile, pod, snapshot)?;
        profile.scores.iter().for_each(|plugin| plugin.read_snapshot(&mut state, pod, snapshot));
        Ok(state)
    }

    /// The state of the latest cycle of a Pod like this one, or a new one.
    fn latest(&mut self, profile: &Profile, pod: &PodInfo, snapshot: &Snapshot) -> Result<CycleState, Rejection> {
        let alike = self.take(|last| !last.pod.placement_differs(pod));
        if let Some(last) = alike.filter(|last| last.generation == snapshot.generation)
            && let Some(changes) = snapshot.pod_changes.since(last.next_change)
        {
            let mut state = last.state;
            for change in changes {
                if let Some(node) = snapshot.node(&change.node) {
                    let change = PodChange { pod: &change.pod, node, number: change.number };
                    profile.filters.pod_changed(&mut state, pod, snapshot, change);
                    profile.scores.iter().for_each(|plugin| plugin.pod_changed(&mut state, pod, snapshot, change));
                }
            }
            return Ok(state);
        }
        let mut state = CycleState::default();
        profile.filters.pre_filter(&mut state, pod, snapshot)?;
        profile.scores.iter().for_each(|plugin| plugin.count_pods(&mut state, pod, snapshot));
        Ok(state)
    }

    /// Stores the state for the next cycle of a Pod like this one.
    pub fn keep(&mut self, pod: &Arc<PodInfo>, snapshot: &Snapshot, state: CycleState) {
        let (pod, next_change) = (Arc::clone(pod), snapshot.pod_changes.next());
        self.put(PreFiltered { pod, generation: snapshot.generation, next_change, state });
    }
}
