//! What the Deployment controller decides in a rollout. It decides by the statuses of ReplicaSets, and by Pods, as its caches have them. So
//! the decisions are checked against these, whatever becomes of Pods and nodes meanwhile, and also after a crash or a change of the leader.
//! The ReplicaSet that a write changes is the one that the controller read, because the write carries the revision; of everything else
//! it may know an older state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::deployments::{least_available, size};
use super::{LAG_MAX, Recent, is_present, owner};
use crate::history::{Change, Check, View};
use crate::object::{controller_uid, is_terminal, number, text};

/// Looks at the ReplicaSets that a rolling update shrinks: as many Pods as are needed stay available, if the statuses are true.
#[derive(Default)]
pub struct Shrinking {
    /// The least number of available Pods of each Deployment.
    least: Recent,
    /// 1 while a Deployment is paused.
    paused: Recent,
    /// The available Pods of each ReplicaSet, and no more than it wants.
    available: Recent,
    /// The scale of the Deployment that each ReplicaSet got its size for; [`NO_SCALE`] while it wants no Pods.
    scales: Recent,
}

const NO_SCALE: i64 = -1;

impl Check for Shrinking {
    fn change(&mut self, view: &View, change: &Change) -> Result<(), String> {
        let Some(new) = &change.new else { return Ok(()) };
        let uid = text(new, "/metadata/uid");
        match change.key.resource.as_str() {
            "deployments" => {
                self.least.add(uid, least_available(new), view.now);
                self.paused.add(uid, i64::from(new["spec"]["paused"] == true), view.now);
                Ok(())
            }
            "replicasets" => {
                self.available.add(uid, available(new).min(size(&change.new)), view.now);
                self.scales.add(uid, if size(&change.new) > 0 { scale(new) } else { NO_SCALE }, view.now);
                self.shrunk(view, change, new)
            }
            _ => Ok(()),
        }
    }
}

/// The available Pods that a ReplicaSet's status counts.
fn available(set: &Value) -> i64 {
    number(set, "/status/availableReplicas").unwrap_or(0)
}

/// The replicas of the Deployment at the time at which a ReplicaSet got its size.
fn scale(set: &Value) -> i64 {
    text(set, "/metadata/annotations/deployment.kubernetes.io~1desired-replicas").parse().unwrap_or(NO_SCALE)
}

impl Shrinking {
    fn shrunk(&self, view: &View, change: &Change, set: &Value) -> Result<(), String> {
        let Some(old) = change.old.as_ref().filter(|_| size(&change.new) < size(&change.old)) else { return Ok(()) };
        let stay = available(old).min(size(&change.new));
        let takes_available = stay < available(old).min(size(&change.old));
        let Some(deployment) = owner(view, set, "deployments", "Deployment").filter(|_| takes_available) else { return Ok(()) };
        if self.is_scaled(view, deployment, scale(set)) || !is_present(view, "controllers") {
            return Ok(());
        }
        let uid = text(deployment, "/metadata/uid");
        let others = view.controlled("replicasets", deployment).map(|other| text(other, "/metadata/uid"));
        let others = others.filter(|other| *other != text(set, "/metadata/uid")).map(|other| self.available.max(other, view.now));
        let (available, least) = (stay + others.sum::<i64>(), self.least.min(uid, view.now));
        if available < least {
            return Err(format!("{} shrinks to {}: {available} Pods stay available, not {least}", change.key, size(&change.new)));
        }
        Ok(())
    }

    /// Whether the change may be one of scale, which shrinks ReplicaSets whether their Pods are available or not: a ReplicaSet with Pods
    /// has, or had lately, the size for another scale, or the Deployment is paused, so that it is scaled and nothing else.
    fn is_scaled(&self, view: &View, deployment: &Value, scale: i64) -> bool {
        let is_other = |lately: i64| lately != NO_SCALE && lately != scale;
        let has_other = |set: &Arc<Value>| self.scales.values(text(set, "/metadata/uid"), view.now).any(is_other);
        self.paused.max(text(deployment, "/metadata/uid"), view.now) == 1 || view.controlled("replicasets", deployment).any(has_other)
    }
}

/// Looks at the ReplicaSets that a Deployment with the strategy `Recreate` lets have Pods: no other ReplicaSet of the Deployment has Pods
/// then that have not ended. A Deployment that is paused is scaled whatever Pods it has.
#[derive(Default)]
pub struct Recreation {
    /// 1 while the strategy is `Recreate` and the Deployment is not paused.
    recreates: Recent,
    /// The owner of each Pod, and since when it is the owner. The cache may not have a newer one.
    owned: BTreeMap<String, (String, Duration)>,
}

impl Check for Recreation {
    fn change(&mut self, view: &View, change: &Change) -> Result<(), String> {
        match (&change.new, change.key.resource.as_str()) {
            (Some(deployment), "deployments") => {
                let recreates = deployment["spec"]["strategy"]["type"] == "Recreate" && deployment["spec"]["paused"] != true;
                self.recreates.add(text(deployment, "/metadata/uid"), i64::from(recreates), view.now);
                Ok(())
            }
            (Some(pod), "pods") => {
                let (uid, owner) = (text(pod, "/metadata/uid"), controller_uid(pod).unwrap_or_default());
                if self.owned.get(uid).is_none_or(|(before, _)| before != owner) {
                    self.owned.insert(uid.to_owned(), (owner.to_owned(), view.now));
                }
                Ok(())
            }
            (None, "pods") => {
                self.owned.remove(change.old.as_ref().map(|pod| text(pod, "/metadata/uid")).unwrap_or_default());
                Ok(())
            }
            (Some(set), "replicasets") if size(&change.old) == 0 && size(&change.new) > 0 => self.revived(view, change, set),
            _ => Ok(()),
        }
    }
}

impl Recreation {
    fn revived(&self, view: &View, change: &Change, set: &Value) -> Result<(), String> {
        let Some(deployment) = owner(view, set, "deployments", "Deployment") else { return Ok(()) };
        if self.recreates.min(text(deployment, "/metadata/uid"), view.now) == 0 || !is_present(view, "controllers") {
            return Ok(());
        }
        let others = view.controlled("replicasets", deployment).filter(|other| text(other, "/metadata/uid") != text(set, "/metadata/uid"));
        let mut old_pods = others.flat_map(|other| view.controlled("pods", other)).filter(|pod| !is_terminal(pod));
        let is_visible =
            |pod: &&Arc<Value>| self.owned.get(text(pod, "/metadata/uid")).is_some_and(|(_, at)| view.now.saturating_sub(*at) > LAG_MAX);
        match old_pods.find(is_visible) {
            Some(old) => Err(format!("{} is to have Pods while {} of another template is there", change.key, text(old, "/metadata/name"))),
            None => Ok(()),
        }
    }
}
