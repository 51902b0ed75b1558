//! Revisions: which ReplicaSet has the Deployment's template, how a new one is named and labelled, and the annotations that
//! `kubectl rollout history` and `undo` read.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_client::informer::LAST_APPLIED;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::fence;
use crate::{hash, meta};

/// Sequence number of a template.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// The revisions that a ReplicaSet had before it was rolled back to.
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The Deployment's replicas when the ReplicaSet was last scaled.
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// The same and the surge that was allowed.
pub const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// Left over from `extensions/v1beta1` roll-backs.
const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
/// The label that separates the Pods of one template from those of another.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";
/// The longest revision history, upstream's.
pub const HISTORY_LEN_MAX: usize = 2000;
/// The longest name of an object.
const NAME_LEN_MAX: usize = 253;

/// Annotations that are the Deployment's alone or set by this controller itself.
fn is_own(key: &str) -> bool {
    [LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS, ROLLBACK_TO].contains(&key)
}

/// Whether a ReplicaSet was made from the Deployment's present template.
pub fn same_template(set: &ReplicaSet, deployment: &Deployment) -> bool {
    let plain = |template: &PodTemplateSpec| {
        let mut template = template.clone();
        if let Some(labels) = template.metadata.as_mut().and_then(|metadata| metadata.labels.as_mut()) {
            labels.remove(POD_TEMPLATE_HASH);
        }
        template
    };
    let own = set.spec.template.as_ref().map(plain).unwrap_or_default();
    meta::semantically_equal(&own, &plain(&deployment.spec.template))
}

/// The ReplicaSet of the present template, the oldest when there are several, and all others,
/// oldest first.
pub fn split(deployment: &Deployment, mut sets: Vec<Arc<ReplicaSet>>) -> (Option<Arc<ReplicaSet>>, Vec<Arc<ReplicaSet>>) {
    sets.sort_by_key(|set| (meta::instant(set.metadata.creation_timestamp.as_ref()), set.metadata.name.clone()));
    let at = sets.iter().position(|set| same_template(set, deployment));
    let new = at.map(|at| sets.remove(at));
    (new, sets)
}

/// The revision annotation as a number; 0 without one.
pub fn revision(meta: &ObjectMeta) -> i64 {
    meta::annotation(meta, REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The revision after all of these.
pub fn next_revision(old: &[Arc<ReplicaSet>]) -> i64 {
    old.iter().map(|set| revision(&set.metadata)).max().unwrap_or(0).saturating_add(1)
}

/// The annotations of the ReplicaSet of the present template: the Deployment's, its revision, and the revisions it had before,
/// in at most `history_len_max` bytes. While the revision is unreadable, all annotations stay as they are.
pub fn annotations(
    deployment: &Deployment,
    current: Option<&BTreeMap<String, String>>,
    revision: i64,
    history_len_max: usize,
) -> BTreeMap<String, String> {
    let mut annotations = current.cloned().unwrap_or_default();
    let before = annotations.get(REVISION).cloned().filter(|before| !before.is_empty());
    let Ok(number) = before.as_deref().map_or(Ok(0), str::parse::<i64>) else { return annotations };
    for (key, value) in deployment.metadata.annotations.iter().flatten().filter(|(key, _)| !is_own(key)) {
        annotations.insert(key.clone(), value.clone());
    }
    if number < revision {
        annotations.insert(REVISION.to_owned(), revision.to_string());
        if let Some(before) = before {
            let history = annotations.entry(REVISION_HISTORY.to_owned()).or_default();
            *history = extended(history, &before, history_len_max);
        }
    }
    annotations
}

/// The history with one more revision, without as many of the oldest as it takes; unchanged when that revision alone is too long.
fn extended(history: &str, revision: &str, len_max: usize) -> String {
    if history.is_empty() {
        return revision.to_owned();
    }
    if revision.len() > len_max {
        return history.to_owned();
    }
    let mut shortened = history;
    while !shortened.is_empty() && shortened.len() + 1 + revision.len() > len_max {
        shortened = shortened.split_once(',').map_or("", |(_, rest)| rest);
    }
    if shortened.is_empty() { revision.to_owned() } else { format!("{shortened},{revision}") }
}

/// The name of the ReplicaSet of a template. A long Deployment's name is cut, so that the hash fits; the cut may be anywhere.
pub fn set_name(deployment: &str, hash: &str) -> String {
    let room = NAME_LEN_MAX.saturating_sub(1 + hash.len());
    let base = if room == 0 { deployment } else { deployment.get(..room).unwrap_or(deployment) };
    format!("{base}-{hash}")
}

/// The annotations with which later scaling computes the proportions.
pub fn size_annotations(deployment: &Deployment) -> [(String, String); 2] {
    let wanted = fence::wanted(deployment);
    let most = wanted.saturating_add(fence::max_surge(deployment));
    [(DESIRED_REPLICAS.to_owned(), wanted.to_string()), (MAX_REPLICAS.to_owned(), most.to_string())]
}

/// A ReplicaSet of the Deployment's present template with `replicas`.
pub fn new_set(deployment: &Deployment, revision: i64, replicas: i32) -> ReplicaSet {
    let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
    let hash = template_hash(&deployment.spec.template, collisions);
    let mut template = deployment.spec.template.clone();
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(POD_TEMPLATE_HASH.to_owned(), hash.clone());
    let labels = labels.clone();
    let mut selector = deployment.spec.selector.clone();
    selector.match_labels.get_or_insert_default().insert(POD_TEMPLATE_HASH.to_owned(), hash.clone());
    let mut annotations = annotations(deployment, None, revision, HISTORY_LEN_MAX);
    annotations.extend(size_annotations(deployment));
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(set_name(meta::name(&deployment.metadata), &hash)),
            namespace: deployment.metadata.namespace.clone(),
            owner_references: Some(vec![meta::controller_reference(deployment)]),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: ReplicaSetSpec {
            replicas: Some(replicas),
            min_ready_seconds: deployment.spec.min_ready_seconds,
            selector,
            template: Some(template),
        },
        status: None,
    }
}

/// A hash of a template that depends on its content only.
pub fn template_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    hash::of(&serde_json::to_value(template).unwrap_or_default(), collisions)
}

/// Old ReplicaSets to delete: the oldest revisions beyond the limit that are empty and settled.
pub fn expired(deployment: &Deployment, old: &[Arc<ReplicaSet>]) -> Vec<Arc<ReplicaSet>> {
    let Some(limit) = deployment.spec.revision_history_limit.filter(|limit| *limit != i32::MAX) else {
        return Vec::new();
    };
    let mut alive: Vec<_> = old.iter().filter(|set| !meta::is_deleting(&set.metadata)).cloned().collect();
    alive.sort_by_key(|set| revision(&set.metadata));
    let surplus = alive.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    let settled = |set: &ReplicaSet| {
        let status = set.status.as_ref();
        let observed = status.and_then(|status| status.observed_generation).unwrap_or(0);
        fence::size(set) == 0 && status.is_none_or(|status| status.replicas == 0) && set.metadata.generation.unwrap_or(0) <= observed
    };
    alive.into_iter().take(surplus).filter(|set| settled(set)).collect()
}
