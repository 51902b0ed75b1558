//! Problems of the node's parts that keep it from being ready. The parts set them; the registrar writes them to the Node's Ready
//! condition.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The part that has the node's Pod range.
pub(crate) const NETWORK: &str = "network";
/// The part that has the containers.
pub(crate) const RUNTIME: &str = "runtime";
/// The problem of a node without a Pod range; upstream's words for a missing network.
pub(crate) const NO_POD_RANGE: &str =
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:the node has no Pod range yet";
/// The problem of a node whose containers have not been listed yet; upstream's words.
pub(crate) const NOT_LISTED: &str = "container runtime status check may not have completed yet";

/// Why the node cannot run Pods, as its Ready condition reports; `None` when it can.
#[derive(Default)]
pub(crate) struct Health {
    problems: Mutex<BTreeMap<&'static str, String>>,
    pub(crate) changed: tokio::sync::Notify,
}

impl Health {
    /// Of an agent that has just begun.
    pub(crate) fn starting() -> Self {
        let health = Self::default();
        health.set(NETWORK, Some(NO_POD_RANGE.to_owned()));
        health.set(RUNTIME, Some(NOT_LISTED.to_owned()));
        health
    }

    /// Sets or clears the problem of a part. Returns whether that changes anything.
    pub(crate) fn set(&self, part: &'static str, problem: Option<String>) -> bool {
        let mut problems = self.problems.lock();
        let before = problems.get(part).cloned();
        if before == problem {
            return false;
        }
        match problem {
            Some(problem) => problems.insert(part, problem),
            None => problems.remove(part),
        };
        drop(problems);
        self.changed.notify_one();
        true
    }

    pub(crate) fn text(&self) -> Option<String> {
        let problems = self.problems.lock();
        let texts: Vec<String> = problems.values().cloned().collect();
        Some(texts.join(", ")).filter(|text| !text.is_empty())
    }
}
