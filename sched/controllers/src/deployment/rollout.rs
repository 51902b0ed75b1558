//! The rolling update: how far the new ReplicaSet may grow and the old ReplicaSets may shrink, so that there are never more
//! Pods than the surge allows and never fewer available Pods than required.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::fence::{self, available, size, wanted};
use super::plan::Sets;

/// ReplicaSets and the sizes they get.
pub type Sizes = Vec<(Arc<ReplicaSet>, i32)>;

/// The size that the newest ReplicaSet may have now.
pub fn new_size(deployment: &Deployment, sets: &Sets) -> i32 {
    if fence::recreates(deployment) {
        return wanted(deployment);
    }
    let current = sets.new.as_ref().map_or(0, |set| size(set));
    let room = wanted(deployment).saturating_add(fence::max_surge(deployment)).saturating_sub(sets.total());
    if room <= 0 { current } else { current.saturating_add(room.min(wanted(deployment).saturating_sub(current))) }
}

/// Scales the newest ReplicaSet towards the wanted size.
pub fn resize_new(deployment: &Deployment, sets: &Sets) -> Sizes {
    let Some(new) = &sets.new else { return Vec::new() };
    let target = if size(new) > wanted(deployment) { wanted(deployment) } else { new_size(deployment, sets) };
    if target == size(new) { Vec::new() } else { vec![(Arc::clone(new), target)] }
}

/// Shrinks old ReplicaSets as far as enough Pods stay available: first by the Pods that are not available, then, oldest
/// ReplicaSet first, by available Pods that new Pods have replaced.
pub fn shrink_old(deployment: &Deployment, sets: &Sets) -> Sizes {
    if sets.old.iter().all(|set| size(set) == 0) {
        return Vec::new();
    }
    let least = wanted(deployment).saturating_sub(fence::max_unavailable(deployment));
    let new_missing = sets.new.as_ref().map_or(0, |set| size(set).saturating_sub(available(set)));
    let removable = sets.total().saturating_sub(least).saturating_sub(new_missing);
    if removable <= 0 {
        return Vec::new();
    }
    let mut sizes: Vec<i32> = sets.old.iter().map(|set| size(set)).collect();
    let mut left = removable;
    for (set, size) in sets.old.iter().zip(&mut sizes) {
        let unhealthy = size.saturating_sub(available(set)).clamp(0, left.max(0));
        *size -= unhealthy;
        left -= unhealthy;
    }
    // A ReplicaSet that was just shrunk counts Pods in its status that it is about to delete.
    let mut surplus = sets.all().map(|set| available(set).min(size(set))).fold(0, i32::saturating_add).saturating_sub(least);
    for size in &mut sizes {
        let step = (*size).clamp(0, surplus.max(0));
        *size -= step;
        surplus -= step;
    }
    let changed = sets.old.iter().zip(sizes).filter(|(set, to)| size(set) != *to);
    changed.map(|(set, size)| (Arc::clone(set), size)).collect()
}
