//! A Pod is bound once, to a node that has room for it.

use super::HANDOVER;
use crate::history::{Change, Check, View};
use crate::object::{is_terminal, text, thousandths};

/// Looks at bindings.
pub struct Bindings;

impl Check for Bindings {
    fn change(&mut self, view: &View, change: &Change) -> Result<(), String> {
        let (Some(old), Some(new), "pods") = (&change.old, &change.new, change.key.resource.as_str()) else { return Ok(()) };
        let (before, node) = (text(old, "/spec/nodeName"), text(new, "/spec/nodeName"));
        if before == node || text(old, "/metadata/uid") != text(new, "/metadata/uid") {
            return Ok(());
        }
        if !before.is_empty() {
            return Err(format!("{} went from {before} to {node}", change.key));
        }
        let Some(object) = view.get("nodes", "", node) else { return Ok(()) };
        let used: i64 = view
            .all("pods")
            .map(|(_, pod)| pod)
            .filter(|pod| text(pod, "/spec/nodeName") == node && !is_terminal(pod))
            .map(|pod| cpu(pod))
            .sum();
        let room = thousandths(text(object, "/status/allocatable/cpu"));
        if used > room && view.incidents.is_steady("scheduler", HANDOVER, view.now) {
            return Err(format!("{} is bound to {node}, which has {room}m and is to run {used}m", change.key));
        }
        Ok(())
    }
}

fn cpu(pod: &serde_json::Value) -> i64 {
    thousandths(text(pod, "/spec/containers/0/resources/requests/cpu"))
}
