//! A Deployment's ReplicaSets never want more Pods than its replicas and its surge, and no ReplicaSet has more Pods than it
//! wants. As upstream, the Deployment controller does not wait until its cache has its last writes: of the other ReplicaSets it may
//! know an older size.

use super::{Recent, are_controllers_steady, count, created_pod, lost_creations, owner, scaled};
use crate::history::{Change, Check, View};
use crate::object::{is_active, number, text};

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

impl Surge {
    fn grown(&self, view: &View, change: &Change) -> Result<(), String> {
        let size =
            |set: &Option<std::sync::Arc<serde_json::Value>>| set.as_ref().and_then(|set| number(set, "/spec/replicas")).unwrap_or(0);
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
