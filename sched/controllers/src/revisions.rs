//! The history of a workload's template as ControllerRevisions, upstream's `pkg/controller/history`: StatefulSets and
//! DaemonSets share it.
//!
//! A revision's data is a strategic merge patch that replaces the template, which `kubectl rollout undo` applies as it is. A
//! template that returns gets its old revision with the next number. A name that another template has already raises the
//! collision count, which is part of the hash.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use api_client::informer::{Informer, ObjectKey};
use api_model::selector::Selector;
use api_model::zero;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::writes::{self, Object};
use crate::{claim, hash, meta};

/// The label of Pods, and of a DaemonSet's revisions, that names the revision.
pub const REVISION_LABEL: &str = "controller-revision-hash";
/// The label of a StatefulSet's revisions with their hash.
pub const HASH_LABEL: &str = "controller.kubernetes.io/hash";
/// The longest part of a revision's name before the hash, upstream's.
const PREFIX_LEN_MAX: usize = 223;
/// How many names one pass tries.
const ATTEMPTS_MAX: usize = 10;

/// What a revision is made from.
pub struct Source<'a, O> {
    /// The workload.
    pub owner: &'a O,
    /// Its present template.
    pub template: &'a PodTemplateSpec,
    /// `status.collisionCount`.
    pub collisions: i32,
    /// The label that gets the hash.
    pub hash_label: &'static str,
}

/// The revisions of a workload.
pub struct History {
    /// The revision of the present template.
    pub update: Arc<ControllerRevision>,
    /// All other revisions, oldest first.
    pub others: Vec<Arc<ControllerRevision>>,
    /// The collision count for the workload's status.
    pub collisions: i32,
}

/// How the present template gets its revision.
#[derive(Debug, PartialEq)]
enum Step {
    /// This revision is the newest and equal.
    Keep(Arc<ControllerRevision>),
    /// This revision is equal and old: it becomes the newest.
    Renumber(Arc<ControllerRevision>, i64),
    /// No revision is equal.
    Create(i64),
}

/// The patch that restores a template.
pub fn data(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or_default();
    if let Some(fields) = template.as_object_mut() {
        fields.insert("$patch".to_owned(), json!("replace"));
    }
    json!({"spec": {"template": template}})
}

/// The template that a revision restores.
pub fn template(revision: &ControllerRevision) -> Result<PodTemplateSpec, Failure> {
    let mut template = revision.data.0.pointer("/spec/template").cloned().unwrap_or_default();
    if let Some(fields) = template.as_object_mut() {
        fields.remove("$patch");
    }
    serde_json::from_value(template).map_err(|error| Failure::Unusable {
        object: format!("ControllerRevision {}", ObjectKey::from(&revision.metadata)),
        problem: error.to_string(),
    })
}

/// The name; empty before the revision is stored.
pub fn name(revision: &ControllerRevision) -> &str {
    meta::name(&revision.metadata)
}

fn number(revision: &ControllerRevision) -> i64 {
    revision.revision.unwrap_or(0)
}

/// Oldest first: by number, then by age, then by name.
fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    let key = |r: &Arc<ControllerRevision>| (number(r), meta::instant(r.metadata.creation_timestamp.as_ref()), r.metadata.name.clone());
    revisions.sort_by_cached_key(key);
}

fn same(revision: &ControllerRevision, data: &Value) -> bool {
    revision.data.0 == *data || zero::same(Some(&revision.data.0), Some(data))
}

/// Finds the present template in the sorted revisions.
fn step(sorted: &[Arc<ControllerRevision>], data: &Value) -> Step {
    let next = sorted.last().map_or(1, |newest| number(newest).saturating_add(1));
    let Some(at) = sorted.iter().rposition(|revision| same(revision, data)) else { return Step::Create(next) };
    match sorted.get(at) {
        Some(equal) if at + 1 == sorted.len() => Step::Keep(Arc::clone(equal)),
        Some(equal) => Step::Renumber(Arc::clone(equal), next),
        None => Step::Create(next),
    }
}

/// The revision of the present template, not stored yet.
fn wanted<O: Object>(source: &Source<'_, O>, data: &Value, number: i64, collisions: i32) -> ControllerRevision {
    let hash = hash::of(data, (collisions > 0).then_some(collisions));
    let owner = source.owner.meta();
    let prefix: String = meta::name(owner).chars().take(PREFIX_LEN_MAX).collect();
    let mut labels = source.template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()).unwrap_or_default();
    labels.insert(source.hash_label.to_owned(), hash.clone());
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{prefix}-{hash}")),
            namespace: owner.namespace.clone(),
            labels: Some(labels),
            annotations: owner.annotations.clone(),
            owner_references: Some(vec![meta::controller_reference(source.owner)]),
            ..ObjectMeta::default()
        },
        data: RawExtension(data.clone()),
        revision: Some(number),
    }
}

/// The revisions that the workload owns now, after adopting and releasing as needed.
pub async fn owned<O: Object>(
    client: &kube::Client,
    revisions: &Informer<ControllerRevision>,
    owner: &O,
    selector: &Selector,
) -> Result<Vec<Arc<ControllerRevision>>, Failure> {
    let mut owned = claim::claim(client, claim::candidates(revisions, owner.meta()), owner, selector).await?;
    sort(&mut owned);
    Ok(owned)
}

/// Gives the present template its revision: the newest one, an old one with a new number, or a new one.
pub async fn ensure<O: Object>(
    client: &kube::Client,
    source: &Source<'_, O>,
    mut sorted: Vec<Arc<ControllerRevision>>,
) -> Result<History, Failure> {
    let data = data(source.template);
    let (update, collisions) = match step(&sorted, &data) {
        Step::Keep(revision) => (revision, source.collisions),
        Step::Renumber(revision, number) => {
            let renumbered = writes::patch(client, revision.as_ref(), json!({"revision": number})).await?;
            (Arc::new(renumbered), source.collisions)
        }
        Step::Create(number) => create(client, source, &data, number).await?,
    };
    sorted.retain(|revision| name(revision) != name(&update));
    Ok(History { update, others: sorted, collisions })
}

/// Creates the revision. A name that is taken has either the same data, because the cache is stale, or other data; then the
/// collision count changes the hash.
async fn create<O: Object>(
    client: &kube::Client,
    source: &Source<'_, O>,
    data: &Value,
    number: i64,
) -> Result<(Arc<ControllerRevision>, i32), Failure> {
    let mut collisions = source.collisions;
    let mut attempts_left = ATTEMPTS_MAX;
    loop {
        let wanted = wanted(source, data, number, collisions);
        let failure = match writes::create(client, &wanted).await {
            Ok(created) => return Ok((Arc::new(created), collisions)),
            Err(failure) => failure,
        };
        attempts_left -= 1;
        if !failure.is_conflict() || attempts_left == 0 {
            return Err(failure);
        }
        match writes::get::<ControllerRevision>(client, &ObjectKey::from(&wanted.metadata)).await? {
            Some(existing) if same(&existing, data) => return Ok((Arc::new(existing), collisions)),
            Some(_) => collisions = collisions.saturating_add(1),
            None => return Err(failure),
        }
    }
}

/// The newest of several revisions of one template, and the others; `None` when there is one at most.
pub fn duplicates(
    sorted: &[Arc<ControllerRevision>],
    template: &PodTemplateSpec,
) -> Option<(Arc<ControllerRevision>, Vec<Arc<ControllerRevision>>)> {
    let data = data(template);
    let mut equal: Vec<_> = sorted.iter().filter(|revision| same(revision, &data)).cloned().collect();
    let newest = equal.pop().filter(|_| !equal.is_empty())?;
    Some((newest, equal))
}

/// The oldest `surplus` revisions that no Pod uses.
pub fn expired(
    sorted: &[Arc<ControllerRevision>],
    in_use: impl Fn(&ControllerRevision) -> bool,
    surplus: usize,
) -> Vec<Arc<ControllerRevision>> {
    sorted.iter().filter(|revision| !in_use(revision)).take(surplus).cloned().collect()
}

/// Deletes revisions.
pub async fn delete(client: &kube::Client, revisions: &[Arc<ControllerRevision>]) -> Result<(), Failure> {
    for revision in revisions {
        writes::delete(client, revision.as_ref(), DeleteParams::default()).await?;
    }
    Ok(())
}
