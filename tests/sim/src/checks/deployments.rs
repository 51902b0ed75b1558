//! A Deployment's ReplicaSets never want more Pods than its replicas and its surge, and no ReplicaSet has more Pods than it
//! wants. A rolling update takes away no Pod that is needed. As upstream, the Deployment controller does not wait until its cache
//! has its last writes: of the other ReplicaSets it may know an older size.

use std::sync::Arc;

use serde_json::Value;

use super::{LAG_MAX, NODES_STEADY, Recent, are_controllers_steady, count, created_pod, lost_creations, owner, scaled};
use crate::history::{Change, Check, View};
use crate::object::{is_active, is_ready, number, text};

/// Looks at the sizes of ReplicaSets.
#[derive(Default)]
pub struct Surge {
    limits: Recent,
    sizes: Recent,
}

impl Check for Surge {
    fn change(&mut self, view: &View, change: &Change) -> Result<(), String> {
        let Some(new) = &change.new else { return Ok(()) };
        match change.key.resource.as_str() {
            "deployments" => {
                let replicas = number(new, "/spec/replicas").unwrap_or(1);
                let surge = &new["spec"]["strategy"]["rollingUpdate"]["maxSurge"];
                let limit = replicas + if surge.is_null() { 0 } else { scaled(surge, replicas, true).unwrap_or(0) };
                self.limits.add(text(new, "/metadata/uid"), limit, view.now);
                Ok(())
            }
            "replicasets" => {
                if change.old.is_none() {
                    self.sizes.add(text(new, "/metadata/uid"), 0, view.now);
                }
                self.sizes.add(text(new, "/metadata/uid"), number(new, "/spec/replicas").unwrap_or(1), view.now);
                self.grown(view, change)
            }
            _ => Ok(()),
        }
    }
}

/// The replicas that a ReplicaSet wants; 0 when it does not exist.
pub fn size(set: &Option<Arc<Value>>) -> i64 {
    set.as_ref().and_then(|set| number(set, "/spec/replicas")).unwrap_or(0)
}

impl Surge {
    fn grown(&self, view: &View, change: &Change) -> Result<(), String> {
        let Some(new) = change.new.as_ref().filter(|_| size(&change.new) > size(&change.old)) else { return Ok(()) };
        let Some(deployment) = owner(view, new, "deployments", "Deployment") else { return Ok(()) };
        let others = view.controlled("replicasets", deployment).filter(|set| text(set, "/metadata/uid") != text(new, "/metadata/uid"));
        let total = size(&change.new) + others.map(|set| self.sizes.min(text(set, "/metadata/uid"), view.now)).sum::<i64>();
        let limit = self.limits.max(text(deployment, "/metadata/uid"), view.now);
        if total > limit && are_controllers_steady(view) {
            return Err(format!(
                "{} grows to {}: the Deployment's ReplicaSets want {total} Pods, not {limit}",
                change.key,
                size(&change.new)
            ));
        }
        Ok(())
    }
}

/// Looks at the Pods that ReplicaSets create.
#[derive(Default)]
pub struct Creations(Recent);

impl Check for Creations {
    fn change(&mut self, view: &View, change: &Change) -> Result<(), String> {
        if let (Some(set), "replicasets") = (&change.new, change.key.resource.as_str()) {
            self.0.add(text(set, "/metadata/uid"), number(set, "/spec/replicas").unwrap_or(1), view.now);
        }
        let Some((_, set)) = created_pod(view, change, "replicasets", "ReplicaSet") else { return Ok(()) };
        let active = count(view.controlled("pods", set).filter(|pod| is_active(pod)));
        let limit = self.0.max(text(set, "/metadata/uid"), view.now) + lost_creations(view, &change.key.namespace);
        if active > limit && are_controllers_steady(view) {
            return Err(format!("{} is Pod number {active} of a ReplicaSet of {limit}", change.key));
        }
        Ok(())
    }
}

/// Looks at the Pods of ReplicaSets that a rolling update shrinks.
#[derive(Default)]
pub struct Availability {
    /// The least number of available Pods of each Deployment.
    least: Recent,
    sizes: Recent,
    /// The available Pods of each ReplicaSet.
    available: Recent,
}

impl Check for Availability {
    fn change(&mut self, view: &View, change: &Change) -> Result<(), String> {
        if change.key.resource == "pods"
            && let Some(pod) = change.new.as_ref().or(change.old.as_ref())
            && let Some(set) = owner(view, pod, "replicasets", "ReplicaSet")
        {
            let available = count(view.controlled("pods", set).filter(|pod| is_active(pod) && is_ready(pod)));
            self.available.add(text(set, "/metadata/uid"), available, view.now);
        }
        let Some(new) = &change.new else { return Ok(()) };
        let uid = text(new, "/metadata/uid");
        match change.key.resource.as_str() {
            "deployments" => {
                self.least.add(uid, least_available(new), view.now);
                Ok(())
            }
            "replicasets" => {
                self.sizes.add(uid, number(new, "/spec/replicas").unwrap_or(1), view.now);
                self.shrunk(view, change, new)
            }
            _ => Ok(()),
        }
    }
}

/// The least number of available Pods that a rollout of a Deployment leaves.
pub fn least_available(deployment: &Value) -> i64 {
    let (replicas, strategy) = (number(deployment, "/spec/replicas").unwrap_or(1), &deployment["spec"]["strategy"]);
    if strategy["type"] == "Recreate" {
        return 0;
    }
    replicas - scaled(&strategy["rollingUpdate"]["maxUnavailable"], replicas, false).unwrap_or(replicas)
}

impl Availability {
    fn shrunk(&self, view: &View, change: &Change, set: &Value) -> Result<(), String> {
        let uid = text(set, "/metadata/uid");
        // A ReplicaSet of which a user or a fault took Pods away may shrink by those that came instead.
        let is_disturbed = !view.incidents.is_left_alone(&change.key.namespace, LAG_MAX, view.now)
            || !view.incidents.are_nodes_steady(NODES_STEADY, view.now);
        let available = if is_disturbed { self.available.min(uid, view.now) } else { self.available.max(uid, view.now) };
        let takes_available = size(&change.new) < size(&change.old) && available > size(&change.new);
        let Some(deployment) = owner(view, set, "deployments", "Deployment").filter(|_| takes_available) else { return Ok(()) };
        // A Pod that is ready is not available before the end of this time.
        if number(deployment, "/spec/minReadySeconds").unwrap_or(0) > 0 {
            return Ok(());
        }
        let deployment = text(deployment, "/metadata/uid");
        // A change of scale shrinks ReplicaSets whether their Pods are available or not.
        if !self.least.is_steady(deployment, view.now) || !are_controllers_steady(view) {
            return Ok(());
        }
        let others = view.within("replicasets", &change.key.namespace).filter(|other| text(other, "/metadata/uid") != uid);
        let others = others.filter(|other| crate::object::controller_uid(other) == Some(deployment)).map(|other| {
            let uid = text(other, "/metadata/uid");
            self.available.max(uid, view.now).min(self.sizes.max(uid, view.now))
        });
        let (available, least) = (size(&change.new) + others.sum::<i64>(), self.least.min(deployment, view.now));
        if available < least {
            return Err(format!("{} shrinks to {}: {available} Pods stay available, not {least}", change.key, size(&change.new)));
        }
        Ok(())
    }
}
