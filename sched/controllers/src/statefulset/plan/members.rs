//! The Pods of a StatefulSet by ordinal, and what each of them needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::{Action, Revisions, Snapshot, update};
use crate::statefulset::{identity, retention};
use crate::{meta, pods, revisions};

/// Whether Pods are created and deleted one after the other.
fn is_ordered(set: &StatefulSet) -> bool {
    set.spec.pod_management_policy.as_deref() != Some("Parallel")
}

/// The Pods of a set by ordinal.
pub struct Members<'a> {
    /// What the plan is made from.
    pub snapshot: &'a Snapshot<'a>,
    /// An entry for each wanted ordinal.
    pub replicas: Vec<(i32, Option<Arc<Pod>>)>,
    /// The Pods of other ordinals, the last one first.
    condemned: Vec<(i32, Arc<Pod>)>,
}

impl<'a> Members<'a> {
    pub fn of(snapshot: &'a Snapshot<'a>) -> Self {
        let set = snapshot.set;
        let named = snapshot.pods.iter().filter_map(|pod| Some((identity::ordinal(set, pod)?, Arc::clone(pod))));
        let mut by_ordinal: BTreeMap<i32, Arc<Pod>> = named.collect();
        let first = identity::start(set);
        let wanted = first..first.saturating_add(identity::replicas(set));
        let replicas = wanted.map(|ordinal| (ordinal, by_ordinal.remove(&ordinal))).collect();
        Self { snapshot, replicas, condemned: by_ordinal.into_iter().rev().collect() }
    }

    fn is_available(&self, pod: &Pod) -> bool {
        let min_ready = self.snapshot.set.spec.min_ready_seconds.unwrap_or(0);
        pods::is_available(pod, min_ready, self.snapshot.now)
    }

    /// Whether the Pod is missing, not available, or ending.
    pub fn is_unavailable(&self, pod: Option<&Arc<Pod>>) -> bool {
        pod.is_none_or(|pod| !self.is_available(pod) || meta::is_deleting(&pod.metadata))
    }

    /// Adds the writes; returns the Pods that the update deletes.
    pub fn phases(&self, phases: &mut Vec<Vec<Action>>) -> Vec<Arc<Pod>> {
        let ordered = is_ordered(self.snapshot.set);
        let mut living = Vec::new();
        for (ordinal, pod) in &self.replicas {
            let blocks = self.replica(*ordinal, pod.as_ref(), &mut living);
            if ordered && blocks {
                phases.push(living);
                return Vec::new();
            }
        }
        let owned = self.condemned.iter().flat_map(|(ordinal, pod)| self.ownership(*ordinal, pod));
        phases.extend([living, owned.collect()]);
        let (gone, blocks) = self.scale_down(ordered);
        phases.push(gone);
        if blocks {
            return Vec::new();
        }
        let replaced = update::replaced(self);
        phases.push(replaced.iter().cloned().map(Action::Delete).collect());
        replaced
    }

    /// The writes for a wanted ordinal. Returns whether the next ordinal has to wait.
    fn replica(&self, ordinal: i32, pod: Option<&Arc<Pod>>, actions: &mut Vec<Action>) -> bool {
        let set = self.snapshot.set;
        let Some(pod) = pod else {
            self.create(ordinal, actions);
            return true;
        };
        if pods::is_terminal(pod) {
            if !meta::is_deleting(&pod.metadata) {
                actions.push(Action::Delete(Arc::clone(pod)));
            }
            return true;
        }
        let is_pending = pods::phase(pod) == "Pending";
        if is_pending {
            self.claims_of_pending(ordinal, pod, actions);
        }
        let waits = meta::is_deleting(&pod.metadata) || !identity::is_running_and_ready(pod) || !self.is_available(pod);
        if is_ordered(set) && waits {
            return true;
        }
        if !is_pending {
            actions.extend(self.ownership(ordinal, pod));
        }
        actions.extend(self.correction(ordinal, pod));
        false
    }

    fn create(&self, ordinal: i32, actions: &mut Vec<Action>) {
        let (set, name) = (self.snapshot.set, identity::pod_name(self.snapshot.set, ordinal));
        let mut claims = Vec::new();
        for wanted in identity::claims(set, ordinal) {
            match (self.snapshot.claim)(meta::name(&wanted.metadata)) {
                None => claims.push(wanted),
                Some(present) if retention::is_stale(set, &name, &present) => return,
                Some(present) if meta::is_deleting(&present.metadata) => {
                    let claim = meta::name(&present.metadata).to_owned();
                    return actions.push(Action::ClaimDeleted { pod: name, claim });
                }
                Some(_) => {}
            }
        }
        let Revisions { current, current_template, update, .. } = self.snapshot.revisions;
        let pod = if update::needs_current_revision(set, revisions::name(update), ordinal) {
            identity::pod(set, ordinal, current_template, revisions::name(current))
        } else {
            identity::pod(set, ordinal, &set.spec.template, revisions::name(update))
        };
        actions.push(Action::Create { pod: Box::new(pod), claims });
    }

    fn claims_of_pending(&self, ordinal: i32, pod: &Arc<Pod>, actions: &mut Vec<Action>) {
        let claims = identity::claims(self.snapshot.set, ordinal);
        let missing: Vec<_> = claims.into_iter().filter(|claim| (self.snapshot.claim)(meta::name(&claim.metadata)).is_none()).collect();
        if !missing.is_empty() {
            actions.push(Action::Claims { pod: Arc::clone(pod), claims: missing });
        }
        actions.extend(self.ownership(ordinal, pod));
    }

    /// The changes of owners of the Pod's claims.
    fn ownership(&self, ordinal: i32, pod: &Arc<Pod>) -> Vec<Action> {
        let set = self.snapshot.set;
        let claims = identity::claim_names(set, ordinal).into_iter().filter_map(|name| (self.snapshot.claim)(&name));
        let changed = claims.filter_map(|claim| {
            let owners = retention::change(set, pod, ordinal, &claim)?;
            Some(Action::Own { claim, owners })
        });
        changed.collect()
    }

    /// The change that gives a Pod its labels and volumes back.
    fn correction(&self, ordinal: i32, pod: &Arc<Pod>) -> Option<Action> {
        let set = self.snapshot.set;
        let mut patch = json!({});
        if !identity::identity_matches(pod) {
            meta::overlay(&mut patch, &json!({"metadata": {"labels": identity::labels(set, ordinal)}}));
        }
        if !identity::storage_matches(set, pod, ordinal) {
            meta::overlay(&mut patch, &json!({"spec": {"volumes": identity::claim_volumes(set, ordinal)}}));
        }
        (patch != json!({})).then(|| Action::Change { pod: Arc::clone(pod), patch })
    }

    /// The Pods to delete because they were scaled away, and whether the update has to wait.
    fn scale_down(&self, ordered: bool) -> (Vec<Action>, bool) {
        let alive = self.condemned.iter().filter(|(_, pod)| !meta::is_deleting(&pod.metadata));
        if !ordered {
            return (alive.map(|(_, pod)| Action::Delete(Arc::clone(pod))).collect(), false);
        }
        let Some((_, last)) = self.condemned.first() else { return (Vec::new(), false) };
        // All replicas are available here, so the first unavailable Pod is one of those that go.
        let unavailable = self.condemned.iter().rev().find(|(_, pod)| self.is_unavailable(Some(pod)));
        let is_first_unavailable = unavailable.is_some_and(|(_, pod)| Arc::ptr_eq(pod, last));
        let settled = identity::is_running_and_ready(last) && self.is_available(last);
        if meta::is_deleting(&last.metadata) || !(settled || is_first_unavailable) {
            return (Vec::new(), true);
        }
        (vec![Action::Delete(Arc::clone(last))], true)
    }
}
