//! Evictions leave as many healthy Pods as the budget wants, when nothing but evictions takes Pods away.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::{LAG_MAX, Recent, count, scaled};
use crate::history::{Change, Check, View};
use crate::object::{controller, is_active, is_ready, is_selected, number, text};

/// Looks at the evictions that a budget allows.
#[derive(Default)]
pub struct Evictions {
    /// The wanted Pods of each owner.
    replicas: Recent,
    /// When a namespace last lost a healthy Pod other than by an eviction.
    lost: BTreeMap<String, Duration>,
}

impl Check for Evictions {
    fn change(&mut self, view: &View, change: &Change) -> Result<(), String> {
        let Some(new) = &change.new else { return Ok(()) };
        match change.key.resource.as_str() {
            "replicasets" | "statefulsets" => {
                self.replicas.add(text(new, "/metadata/uid"), number(new, "/spec/replicas").unwrap_or(1), view.now);
            }
            "deployments" => self.replicas.add(text(new, "/metadata/uid"), number(new, "/spec/replicas").unwrap_or(1), view.now),
            "pods" => self.pod(view, change),
            "poddisruptionbudgets" => return self.budget(view, change),
            _ => {}
        }
        Ok(())
    }
}

impl Evictions {
    fn pod(&mut self, view: &View, change: &Change) {
        let is_healthy = |pod: &Option<std::sync::Arc<Value>>| pod.as_ref().is_some_and(|pod| is_active(pod) && is_ready(pod));
        let by_user = view.incidents.is_deleted_by_user(&change.key.namespace, &change.key.name, view.now);
        if is_healthy(&change.old) && !is_healthy(&change.new) && !by_user {
            self.lost.insert(change.key.namespace.clone(), view.now);
        }
    }

    fn budget(&self, view: &View, change: &Change) -> Result<(), String> {
        let (Some(old), Some(budget)) = (&change.old, &change.new) else { return Ok(()) };
        let disrupted = |budget: &Value| budget["status"]["disruptedPods"].as_object().cloned().unwrap_or_default();
        let (before, now) = (disrupted(old), disrupted(budget));
        let Some(evicted) = now.keys().find(|pod| !before.contains_key(*pod)) else { return Ok(()) };
        let namespace = &change.key.namespace;
        let is_disturbed = self.lost.get(namespace).is_some_and(|at| view.now.saturating_sub(*at) <= LAG_MAX)
            || !view.incidents.are_nodes_steady(LAG_MAX * 3, view.now);
        if is_disturbed {
            return Ok(());
        }
        let selected: Vec<_> = view.within("pods", namespace).filter(|pod| is_selected(pod, &budget["spec"]["selector"])).collect();
        let is_left = |pod: &&&std::sync::Arc<Value>| is_active(pod) && is_ready(pod) && !now.contains_key(text(pod, "/metadata/name"));
        let healthy = count(selected.iter().filter(is_left));
        let Some(desired) = self.desired(view, budget, &selected) else { return Ok(()) };
        if healthy < desired {
            return Err(format!("{}: {evicted} is evicted, {healthy} healthy Pods are left and {desired} are wanted", change.key));
        }
        Ok(())
    }

    /// How many Pods the budget wants healthy; `None` while their owners are changing.
    fn desired(&self, view: &View, budget: &Value, selected: &[&std::sync::Arc<Value>]) -> Option<i64> {
        if let Some(least) = budget["spec"]["minAvailable"].as_i64() {
            return Some(least);
        }
        let mut owners = BTreeMap::new();
        for pod in selected {
            let (mut uid, mut replicas) = self.owner(view, pod, controller(pod)?)?;
            if let Some(set) = view.get("replicasets", text(pod, "/metadata/namespace"), text(controller(pod)?, "/name"))
                && let Some(deployment) = controller(set)
            {
                (uid, replicas) = self.owner(view, set, deployment)?;
            }
            owners.insert(uid, replicas);
        }
        let expected: i64 = owners.values().sum();
        match (&budget["spec"]["minAvailable"], &budget["spec"]["maxUnavailable"]) {
            (Value::Null, most) => Some(expected - scaled(most, expected, true)?),
            (least, _) => scaled(least, expected, true),
        }
    }

    fn owner(&self, view: &View, object: &Value, reference: &Value) -> Option<(String, i64)> {
        let resource = format!("{}s", text(reference, "/kind").to_lowercase());
        let owner = view.get(&resource, text(object, "/metadata/namespace"), text(reference, "/name"))?;
        let uid = text(owner, "/metadata/uid");
        self.replicas.is_steady(uid, view.now).then(|| (uid.to_owned(), self.replicas.max(uid, view.now)))
    }
}
