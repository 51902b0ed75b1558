//! The cycle of a Pod of a gang. Whether room should be made for the Pod is not a question of the Pod alone, so no post-filter plugin is
//! called, as upstream.

use std::sync::Arc;

use sched_framework::{PodInfo, Scope, Snapshot};

use super::{Progress, find_host, nominated_host};
use crate::diagnosis::{Diagnosis, FitError};
use crate::plugins::Profile;

/// The name of the best node for the Pod, or why there is none.
pub(crate) fn schedule_member(
    profile: &Profile,
    pod: &Arc<PodInfo>,
    snapshot: &Snapshot,
    progress: &mut Progress,
) -> Result<String, Box<FitError>> {
    let (nodes, mut diagnosis) = (snapshot.nodes.len(), Diagnosis::default());
    if nodes == 0 {
        return Err(Box::new(FitError::NoNodes));
    }
    let mut state = match progress.pre_filtered.pre_filter(profile, pod, snapshot) {
        Ok(state) => state,
        Err(rejection) => {
            diagnosis.add_all(nodes, rejection);
            return Err(Box::new(FitError::Unschedulable { nodes, diagnosis }));
        }
    };
    let host = match nominated_host(profile, &mut state, pod, snapshot) {
        Some(host) => Some(host),
        None => find_host(profile, &mut state, pod, snapshot, progress, &mut diagnosis),
    };
    progress.keep(profile, pod, snapshot, state);
    host.ok_or_else(|| Box::new(FitError::Unschedulable { nodes, diagnosis }))
}

/// Whether what the Pod fits on depends on a node and its Pods alone, and not on Pods of other nodes.
pub(crate) fn depends_on_node_alone(profile: &Profile, pod: &Arc<PodInfo>, snapshot: &Snapshot, progress: &mut Progress) -> bool {
    let Ok(state) = progress.pre_filtered.pre_filter(profile, pod, snapshot) else { return false };
    let is_alone = profile.filters.in_scope(Scope::Cluster, &state, pod).is_empty();
    progress.keep(profile, pod, snapshot, state);
    is_alone
}
