//! A DaemonSet has one Pod on each node, and one more during a rollout with surge. A rollout takes away no more Pods that are
//! ready than may be unavailable.

use serde_json::Value;

use super::{LAG_MAX, NODES_STEADY, Recent, are_controllers_steady, count, created_pod, deleted_pod, lost_creations};
use crate::history::{Change, Check, View};
use crate::object::{is_active, is_ready, number, text};

/// Looks at the Pods that a DaemonSet creates and deletes.
#[derive(Default)]
pub struct Rollout {
    /// 1 while a Pod is ready.
    ready: Recent,
    generations: Recent,
}

impl Check for Rollout {
    fn change(&mut self, view: &View, change: &Change) -> Result<(), String> {
        if let (Some(set), "daemonsets") = (&change.new, change.key.resource.as_str()) {
            self.generations.add(text(set, "/metadata/uid"), number(set, "/metadata/generation").unwrap_or(0), view.now);
        }
        if let (Some(pod), "pods") = (&change.new, change.key.resource.as_str()) {
            self.ready.add(text(pod, "/metadata/uid"), i64::from(is_ready(pod)), view.now);
        }
        if let Some((pod, set)) = created_pod(view, change, "daemonsets", "DaemonSet") {
            let node = node(pod);
            let there = count(view.controlled("pods", set).filter(|other| is_active(other) && self::node(other) == node));
            let limit = 1 + i64::from(surge(set) > 0) + lost_creations(view, &change.key.namespace);
            if there > limit && are_controllers_steady(view) {
                return Err(format!("{} is Pod number {there} on {node}", change.key));
            }
        }
        match deleted_pod(view, change, "daemonsets", "DaemonSet") {
            // A Pod that became ready just now may not be ready in the cache.
            Some((pod, set)) if self.ready.values(text(pod, "/metadata/uid"), view.now).all(|is_ready| is_ready == 1) => {
                self.deleted(view, change, pod, set)
            }
            _ => Ok(()),
        }
    }
}

impl Rollout {
    fn deleted(&self, view: &View, change: &Change, pod: &Value, set: &Value) -> Result<(), String> {
        let is_disturbed = !are_controllers_steady(view)
            || !view.incidents.are_nodes_steady(NODES_STEADY, view.now)
            || !view.incidents.is_left_alone(&change.key.namespace, LAG_MAX, view.now)
            || lost_creations(view, &change.key.namespace) > 0;
        // The Pods of a template that was changed again at once are old and not available: upstream replaces them without counting them.
        let is_changed_twice = self.generations.values(text(set, "/metadata/uid"), view.now).count() > 2;
        if is_disturbed || is_changed_twice {
            return Ok(());
        }
        let has_ready = |node: &str| view.controlled("pods", set).any(|pod| is_active(pod) && is_ready(pod) && self::node(pod) == node);
        let unavailable = count(view.all("nodes").filter(|(key, node)| gets_pods(node) && !has_ready(&key.name)));
        let limit = number(set, "/spec/updateStrategy/rollingUpdate/maxUnavailable").unwrap_or(1);
        if !has_ready(node(pod)) && unavailable > limit {
            return Err(format!("{} goes: {unavailable} nodes have no Pod that is ready, and {limit} may", change.key));
        }
        Ok(())
    }
}

/// Whether the node gets Pods of a DaemonSet: they tolerate that an unreachable node evicts them, but none is created for it.
fn gets_pods(node: &Value) -> bool {
    let keeps_away = |taint: &Value| {
        taint["effect"] == "NoSchedule" && matches!(text(taint, "/key"), "node.kubernetes.io/unreachable" | "node.kubernetes.io/not-ready")
    };
    !node["spec"]["taints"].as_array().into_iter().flatten().any(keeps_away)
}

fn surge(set: &Value) -> i64 {
    number(set, "/spec/updateStrategy/rollingUpdate/maxSurge").unwrap_or(0)
}

/// The node of a Pod, which the DaemonSet names in its affinity.
fn node(pod: &Value) -> &str {
    let terms = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    text(pod, &format!("{terms}/0/matchFields/0/values/0"))
}
