//! A StatefulSet creates its Pods in order and replaces them from the last to the first, one at a time, unless it is parallel.

use serde_json::Value;

use super::{LAG_MAX, NODES_STEADY, Recent, are_controllers_steady, created_pod, deleted_pod};
use crate::history::{Change, Check, View};
use crate::object::{is_active, is_ready, number, text};

/// Looks at the order of creations and deletions.
#[derive(Default)]
pub struct Order(Recent);

impl Check for Order {
    fn change(&mut self, view: &View, change: &Change) -> Result<(), String> {
        if let (Some(set), "statefulsets") = (&change.new, change.key.resource.as_str()) {
            self.0.add(text(set, "/metadata/uid"), number(set, "/spec/replicas").unwrap_or(1), view.now);
        }
        if let Some((pod, set)) = created_pod(view, change, "statefulsets", "StatefulSet") {
            self.created(view, pod, set)?;
        }
        if let Some((pod, set)) = deleted_pod(view, change, "statefulsets", "StatefulSet") {
            self.deleted(view, pod, set)?;
        }
        Ok(())
    }
}

impl Order {
    fn created(&self, view: &View, pod: &Value, set: &Value) -> Result<(), String> {
        let (name, ordinal) = (text(pod, "/metadata/name"), ordinal(pod));
        if ordinal >= self.0.max(text(set, "/metadata/uid"), view.now) && are_controllers_steady(view) {
            return Err(format!("{name} is beyond the replicas of its StatefulSet"));
        }
        if !is_undisturbed(view, pod) || text(set, "/spec/podManagementPolicy") == "Parallel" {
            return Ok(());
        }
        match (0..ordinal).find(|lower| !has(view, set, *lower)) {
            Some(lower) => Err(format!("{name} is created before Pod {lower} is ready")),
            None => Ok(()),
        }
    }

    fn deleted(&self, view: &View, pod: &Value, set: &Value) -> Result<(), String> {
        let uid = text(set, "/metadata/uid");
        let (replicas, ordinal) = (self.0.max(uid, view.now), ordinal(pod));
        if !is_undisturbed(view, pod) || !self.0.is_steady(uid, view.now) || ordinal >= replicas {
            return Ok(());
        }
        match (ordinal + 1..replicas).find(|higher| !has(view, set, *higher)) {
            Some(higher) => Err(format!("{} is replaced before Pod {higher} is ready", text(pod, "/metadata/name"))),
            None => Ok(()),
        }
    }
}

/// Whether neither a fault nor a user has taken Pods of the namespace away lately.
fn is_undisturbed(view: &View, pod: &Value) -> bool {
    are_controllers_steady(view)
        && view.incidents.are_nodes_steady(NODES_STEADY, view.now)
        && view.incidents.is_left_alone(text(pod, "/metadata/namespace"), LAG_MAX, view.now)
}

/// Whether the Pod of that ordinal is ready and stays.
fn has(view: &View, set: &Value, ordinal: i64) -> bool {
    let name = format!("{}-{ordinal}", text(set, "/metadata/name"));
    let pod = view.get("pods", text(set, "/metadata/namespace"), &name);
    pod.is_some_and(|pod| is_active(pod) && is_ready(pod))
}

fn ordinal(pod: &Value) -> i64 {
    text(pod, "/metadata/name").rsplit('-').next().and_then(|text| text.parse().ok()).unwrap_or(-1)
}
