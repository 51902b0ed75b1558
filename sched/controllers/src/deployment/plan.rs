//! One pass over a Deployment as a value: what to do now, the status, and when to look again.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use serde_json::{Value, json};

use super::{fence, history, rollout, scale, status};
use crate::meta;

/// The objects that a plan is made from.
pub struct Snapshot<'a> {
    /// The Deployment.
    pub deployment: &'a Deployment,
    /// The ReplicaSets it owns.
    pub sets: Vec<Arc<ReplicaSet>>,
    /// Whether a ReplicaSet has Pods that are not at their end.
    pub runs_pods: &'a dyn Fn(&ReplicaSet) -> bool,
    /// The time.
    pub now: Timestamp,
}

/// A write.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Make a ReplicaSet of the present template.
    Create(Box<ReplicaSet>),
    /// Annotate the Deployment with the newest revision.
    SetRevision(String),
    /// Change a ReplicaSet.
    Change {
        /// The ReplicaSet.
        set: Arc<ReplicaSet>,
        /// A JSON merge patch.
        patch: Value,
        /// The sizes before and after, where the size changes.
        scaled: Option<(i32, i32)>,
    },
    /// Delete an old ReplicaSet that is beyond the revision history.
    Delete(Arc<ReplicaSet>),
}

/// The result of one pass.
#[derive(Debug, PartialEq)]
pub struct Plan {
    /// The writes, in order.
    pub actions: Vec<Action>,
    /// The status to have afterwards.
    pub status: DeploymentStatus,
    /// When to look again although nothing changes: a progress deadline.
    pub look_again: Option<Duration>,
}

/// The ReplicaSets of a Deployment, sorted out.
pub struct Sets {
    /// The ReplicaSet of the present template.
    pub new: Option<Arc<ReplicaSet>>,
    /// All others, oldest first.
    pub old: Vec<Arc<ReplicaSet>>,
}

impl Sets {
    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> + Clone {
        self.old.iter().chain(self.new.iter())
    }

    /// The sum of the ReplicaSets' replicas in their specs.
    pub fn total(&self) -> i32 {
        self.all().map(|set| fence::size(set)).fold(0, i32::saturating_add)
    }
}

/// Plans one pass.
pub fn plan(snapshot: &Snapshot<'_>) -> Plan {
    let deployment = snapshot.deployment;
    let (new, old) = history::split(deployment, snapshot.sets.clone());
    let sets = Sets { new, old };
    if meta::is_deleting(&deployment.metadata) {
        return settle(snapshot, &sets, Vec::new(), None);
    }
    let pausing = status::pause_change(deployment);
    if deployment.spec.paused == Some(true) {
        let mut actions = revised(deployment, &sets).unwrap_or_default();
        actions.extend(scale::proportionally(deployment, &sets));
        actions.extend(history::expired(deployment, &sets.old).into_iter().map(Action::Delete));
        return settle(snapshot, &sets, merged(actions), Some(pausing));
    }
    // New Pods wait until those of the old templates are gone. Upstream scales them nevertheless.
    let waits = fence::recreates(deployment) && sets.new.is_some() && sets.old.iter().any(|set| has_pods(snapshot, set));
    let scaled = if scale::is_wanted(deployment, &sets) && !waits { scale::proportionally(deployment, &sets) } else { Vec::new() };
    if !scaled.is_empty() {
        let mut actions = revised(deployment, &sets).unwrap_or_default();
        actions.extend(scaled);
        return settle(snapshot, &sets, merged(actions), Some(pausing));
    }
    let mut actions = if fence::recreates(deployment) { recreate(snapshot, &sets) } else { rolling(deployment, &sets) };
    let now_complete = status::is_complete(deployment, &status::counted(deployment, &sets, snapshot.now));
    if actions.is_empty() && now_complete {
        actions.extend(history::expired(deployment, &sets.old).into_iter().map(Action::Delete));
    }
    settle(snapshot, &sets, actions, None)
}

/// During a pause, a scaling or a deletion only the counts change; a rollout also evaluates its progress.
fn settle(snapshot: &Snapshot<'_>, sets: &Sets, actions: Vec<Action>, only_counting: Option<Option<status::Condition>>) -> Plan {
    let deleting = meta::is_deleting(&snapshot.deployment.metadata);
    if deleting || only_counting.is_some() {
        let mut counted = status::counted(snapshot.deployment, sets, snapshot.now);
        if let Some(condition) = only_counting.flatten() {
            status::set_condition(&mut counted, condition, snapshot.now);
        }
        return Plan { actions, status: counted, look_again: None };
    }
    let creating = actions.iter().find_map(|action| match action {
        Action::Create(set) => Some(meta::name(&set.metadata).to_owned()),
        _ => None,
    });
    let (status, look_again) = status::of_rollout(snapshot.deployment, sets, creating.as_deref(), snapshot.now);
    Plan { actions, status, look_again }
}

/// Updates the newest ReplicaSet's annotations and the Deployment's revision; `None` when there is no such ReplicaSet.
fn revised(deployment: &Deployment, sets: &Sets) -> Option<Vec<Action>> {
    let new = sets.new.as_ref()?;
    let revision = history::next_revision(&sets.old);
    let mut actions = Vec::new();
    let annotations = history::annotations(deployment, new.metadata.annotations.as_ref(), revision, history::HISTORY_LEN_MAX);
    let revision = annotations.get(history::REVISION).cloned().unwrap_or_default();
    let mut patch = json!({});
    if new.metadata.annotations.as_ref() != Some(&annotations) {
        meta::overlay(&mut patch, &json!({"metadata": {"annotations": annotations}}));
    }
    if new.spec.min_ready_seconds.unwrap_or(0) != deployment.spec.min_ready_seconds.unwrap_or(0) {
        meta::overlay(&mut patch, &json!({"spec": {"minReadySeconds": deployment.spec.min_ready_seconds.unwrap_or(0)}}));
    }
    if patch.as_object().is_some_and(|patch| !patch.is_empty()) {
        actions.push(Action::Change { set: Arc::clone(new), patch, scaled: None });
    }
    if meta::annotation(&deployment.metadata, history::REVISION) != Some(revision.as_str()) {
        actions.push(Action::SetRevision(revision));
    }
    Some(actions)
}

fn created(deployment: &Deployment, sets: &Sets) -> Vec<Action> {
    let revision = history::next_revision(&sets.old);
    let set = history::new_set(deployment, revision, rollout::new_size(deployment, sets));
    vec![Action::Create(Box::new(set)), Action::SetRevision(revision.to_string())]
}

fn rolling(deployment: &Deployment, sets: &Sets) -> Vec<Action> {
    let Some(mut actions) = revised(deployment, sets) else {
        return created(deployment, sets);
    };
    let up = rollout::resize_new(deployment, sets);
    let moved = if up.is_empty() { rollout::shrink_old(deployment, sets) } else { up };
    actions.extend(moved.into_iter().filter_map(|(set, size)| resized(deployment, &set, size)));
    merged(actions)
}

/// Whether a ReplicaSet has Pods, by its status or by the Pods themselves.
fn has_pods(snapshot: &Snapshot<'_>, set: &ReplicaSet) -> bool {
    set.status.as_ref().is_some_and(|status| status.replicas > 0) || (snapshot.runs_pods)(set)
}

fn recreate(snapshot: &Snapshot<'_>, sets: &Sets) -> Vec<Action> {
    let deployment = snapshot.deployment;
    let shrunk: Vec<Action> = sets.old.iter().filter(|set| fence::size(set) > 0).filter_map(|set| resized(deployment, set, 0)).collect();
    if !shrunk.is_empty() {
        let mut actions = revised(deployment, sets).unwrap_or_default();
        actions.extend(shrunk);
        return actions;
    }
    if sets.old.iter().any(|set| has_pods(snapshot, set)) {
        return revised(deployment, sets).unwrap_or_default();
    }
    let Some(mut actions) = revised(deployment, sets) else {
        return created(deployment, sets);
    };
    actions.extend(sets.new.iter().filter_map(|set| resized(deployment, set, fence::wanted(deployment))));
    merged(actions)
}

/// The change that gives a ReplicaSet a size and records the size of the whole; `None` when both are so already.
pub fn resized(deployment: &Deployment, set: &Arc<ReplicaSet>, size: i32) -> Option<Action> {
    let from = fence::size(set);
    let notes = history::size_annotations(deployment);
    let noted = notes.iter().all(|(key, value)| meta::annotation(&set.metadata, key) == Some(value));
    if from == size && noted {
        return None;
    }
    let annotations: serde_json::Map<String, Value> = notes.into_iter().map(|(key, value)| (key, Value::from(value))).collect();
    let mut patch = json!({"metadata": {"annotations": annotations}});
    if from != size {
        meta::overlay(&mut patch, &json!({"spec": {"replicas": size}}));
    }
    Some(Action::Change { set: Arc::clone(set), patch, scaled: (from != size).then_some((from, size)) })
}

/// Two changes of one ReplicaSet are merged: the second would carry an old revision.
fn merged(actions: Vec<Action>) -> Vec<Action> {
    let mut merged: Vec<Action> = Vec::new();
    for action in actions {
        if let Action::Change { set, patch, scaled } = &action
            && let Some(Action::Change { patch: earlier, scaled: earlier_scaled, .. }) = merged.iter_mut().find(|other| changes(other, set))
        {
            meta::overlay(earlier, patch);
            *earlier_scaled = earlier_scaled.or(*scaled);
        } else {
            merged.push(action);
        }
    }
    merged
}

fn changes(action: &Action, set: &Arc<ReplicaSet>) -> bool {
    matches!(action, Action::Change { set: changed, .. } if changed.metadata.uid == set.metadata.uid)
}

/// Upstream's message of a scaling event.
pub fn scaled_message(set: &ReplicaSet, from: i32, to: i32) -> String {
    let direction = if from < to { "up" } else { "down" };
    format!("Scaled {direction} replica set {} from {from} to {to}", meta::name(&set.metadata))
}
