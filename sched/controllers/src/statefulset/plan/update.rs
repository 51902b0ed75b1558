//! The rolling update: which Pods it replaces next, and of which revision a missing Pod is created.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{RollingUpdateStatefulSetStrategy, StatefulSet};
use k8s_openapi::api::core::v1::Pod;

use super::members::Members;
use crate::statefulset::identity;
use crate::{meta, percent, revisions};

fn rolling(set: &StatefulSet) -> Option<&RollingUpdateStatefulSetStrategy> {
    set.spec.update_strategy.as_ref()?.rolling_update.as_ref()
}

/// Whether the strategy is `RollingUpdate`, the default.
pub fn is_rolling(set: &StatefulSet) -> bool {
    let strategy = set.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
    strategy.is_none_or(|strategy| strategy == "RollingUpdate")
}

/// Whether a missing Pod is created of the revision before the update.
pub fn needs_current_revision(set: &StatefulSet, update: &str, ordinal: i32) -> bool {
    let status = set.status.as_ref();
    if !is_rolling(set) || status.and_then(|status| status.current_revision.as_deref()) == Some(update) {
        return false;
    }
    let not_updated = match rolling(set) {
        Some(rolling) => rolling.partition.unwrap_or(0),
        None => status.and_then(|status| status.current_replicas).unwrap_or(0),
    };
    ordinal < identity::start(set).saturating_add(not_updated)
}

/// The Pods that the update deletes now, the last ordinal first.
pub(super) fn replaced(members: &Members<'_>) -> Vec<Arc<Pod>> {
    let set = members.snapshot.set;
    if !is_rolling(set) {
        return Vec::new();
    }
    let partition = usize::try_from(rolling(set).and_then(|rolling| rolling.partition).unwrap_or(0)).unwrap_or(0);
    match rolling(set).and_then(|rolling| rolling.max_unavailable.as_ref()) {
        None => one_by_one(members, partition).into_iter().collect(),
        Some(most) => {
            // Upstream rounds down, and lets at least one Pod be unavailable.
            let most = percent::scaled(most, identity::replicas(set), percent::Round::Down).max(1);
            several(members, partition, usize::try_from(most).unwrap_or(1))
        }
    }
}

fn is_old(members: &Members<'_>, pod: &Pod) -> bool {
    identity::revision(pod) != revisions::name(&members.snapshot.revisions.update) && !meta::is_deleting(&pod.metadata)
}

/// The last Pod of an old revision, unless a Pod after it is unavailable.
fn one_by_one(members: &Members<'_>, partition: usize) -> Option<Arc<Pod>> {
    for (_, pod) in members.replicas.iter().skip(partition).rev() {
        match pod {
            Some(pod) if is_old(members, pod) => return Some(Arc::clone(pod)),
            pod if members.is_unavailable(pod.as_ref()) => return None,
            _ => {}
        }
    }
    None
}

/// Old Pods while fewer than `most` Pods are unavailable. Unlike upstream's, an old Pod that is unavailable already is always
/// replaced: waiting for it would stop an update that repairs it.
fn several(members: &Members<'_>, partition: usize, most: usize) -> Vec<Arc<Pod>> {
    let unavailable = members.replicas.iter().filter(|(_, pod)| members.is_unavailable(pod.as_ref())).count();
    let mut left = most.saturating_sub(unavailable);
    let mut replaced = Vec::new();
    let old = members.replicas.iter().skip(partition).rev().filter_map(|(_, pod)| pod.as_ref()).filter(|pod| is_old(members, pod));
    for pod in old {
        if members.is_unavailable(Some(pod)) {
            replaced.push(Arc::clone(pod));
        } else if left > 0 {
            left -= 1;
            replaced.push(Arc::clone(pod));
        }
    }
    replaced
}
