//! Scaling while a rollout is in progress or paused: the ReplicaSets grow or shrink in proportion to their sizes, so that a
//! change of scale moves no Pod from one template to another.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::fence::{self, available, size, wanted};
use super::history::{DESIRED_REPLICAS, MAX_REPLICAS};
use super::plan::{Action, Sets, resized};
use crate::meta;

/// Whether the Deployment's scale was changed since its ReplicaSets got their sizes.
pub fn is_wanted(deployment: &Deployment, sets: &Sets) -> bool {
    let noted = |set: &ReplicaSet| number(set, DESIRED_REPLICAS);
    sets.all().filter(|set| size(set) > 0).any(|set| noted(set).is_some_and(|noted| noted != wanted(deployment)))
}

fn number(set: &ReplicaSet, annotation: &str) -> Option<i32> {
    meta::annotation(&set.metadata, annotation)?.parse().ok().filter(|number| *number >= 0)
}

/// The changes that bring the ReplicaSets to the wanted scale. There is none for several ReplicaSets of the strategy `Recreate`, of which
/// the rollout shrinks those of old templates. (Upstream waits then for ever, and also for a ReplicaSet that has the wanted size but notes another.)
pub fn proportionally(deployment: &Deployment, sets: &Sets) -> Vec<Action> {
    if let Some(only) = active_or_latest(sets) {
        return resized(deployment, only, wanted(deployment)).into_iter().collect();
    }
    if is_saturated(deployment, sets) {
        return sets.old.iter().filter(|set| size(set) > 0).filter_map(|set| resized(deployment, set, 0)).collect();
    }
    if fence::recreates(deployment) {
        return Vec::new();
    }
    let active: Vec<Arc<ReplicaSet>> = sets.all().filter(|set| size(set) > 0).cloned().collect();
    shares(deployment, active).into_iter().filter_map(|(set, size)| resized(deployment, &set, size)).collect()
}

/// The only ReplicaSet with replicas, or the newest when none has any; `None` when several have.
fn active_or_latest(sets: &Sets) -> Option<&Arc<ReplicaSet>> {
    let mut active = sets.all().filter(|set| size(set) > 0);
    match (active.next(), active.next()) {
        (None, _) => sets.new.as_ref().or(sets.old.last()),
        (only, None) => only,
        _ => None,
    }
}

/// Whether the newest ReplicaSet alone provides all that is wanted.
fn is_saturated(deployment: &Deployment, sets: &Sets) -> bool {
    let wanted = wanted(deployment);
    sets.new.as_ref().is_some_and(|new| size(new) == wanted && number(new, DESIRED_REPLICAS) == Some(wanted) && available(new) == wanted)
}

/// Sizes in proportion; the largest gets the remainder of the rounding.
fn shares(deployment: &Deployment, mut active: Vec<Arc<ReplicaSet>>) -> Vec<(Arc<ReplicaSet>, i32)> {
    let allowed = if wanted(deployment) > 0 { wanted(deployment).saturating_add(fence::max_surge(deployment)) } else { 0 };
    let to_add = allowed.saturating_sub(active.iter().map(|set| size(set)).fold(0, i32::saturating_add));
    let age = |set: &ReplicaSet| meta::instant(set.metadata.creation_timestamp.as_ref());
    active.sort_by(|a, b| {
        let older = age(a).cmp(&age(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name));
        size(b).cmp(&size(a)).then(if to_add > 0 { older.reverse() } else { older })
    });
    let mut added = 0;
    let mut sizes = Vec::new();
    for set in active {
        let share = share(&set, deployment, to_add, added);
        added = share.saturating_add(added);
        let to = size(&set).saturating_add(share);
        sizes.push((set, to));
    }
    if let Some((_, largest)) = sizes.first_mut().filter(|_| to_add != 0) {
        *largest = largest.saturating_add(to_add).saturating_sub(added).max(0);
    }
    sizes
}

fn share(set: &ReplicaSet, deployment: &Deployment, to_add: i32, added: i32) -> i32 {
    if size(set) == 0 || to_add == 0 || to_add == added {
        return 0;
    }
    let (fraction, allowed) = (fraction(set, deployment), to_add.saturating_sub(added));
    if to_add > 0 { fraction.min(allowed) } else { fraction.max(allowed) }
}

/// The change of a ReplicaSet that keeps its share of the whole.
pub fn fraction(set: &ReplicaSet, deployment: &Deployment) -> i32 {
    if wanted(deployment) == 0 {
        return size(set).saturating_neg();
    }
    let whole_now = i64::from(wanted(deployment)) + i64::from(fence::max_surge(deployment));
    let of_status = || deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or(0);
    let whole_before = i64::from(number(set, MAX_REPLICAS).filter(|most| *most > 0).unwrap_or_else(of_status));
    if whole_before <= 0 {
        return 0;
    }
    // Rounded half away from zero, as Go's integer rounding of the quotient of positives.
    let product = i64::from(size(set)).saturating_mul(whole_now);
    let share = product.saturating_mul(2).saturating_add(whole_before) / whole_before.saturating_mul(2);
    i32::try_from(share).unwrap_or(i32::MAX).saturating_sub(size(set))
}
