//! Problems of the node's parts that keep it from being ready. The parts set them; the registrar writes them to the Node's Ready
//! condition.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Why the node cannot run Pods, as its Ready condition reports; `None` when it can.
#[derive(Default)]
pub(crate) struct Health {
    problems: Mutex<BTreeMap<&'static str, String>>,
    pub(crate) changed: tokio::sync::Notify,
}

impl Health {
    /// Sets or clears the problem of a part.
    pub(crate) fn set(&self, part: &'static str, problem: Option<String>) {
        let mut problems = self.problems.lock();
        let before = problems.get(part).cloned();
        if before == problem {
            return;
        }
        match problem {
            Some(problem) => problems.insert(part, problem),
            None => problems.remove(part),
        };
        drop(problems);
        self.changed.notify_one();
    }

    pub(crate) fn text(&self) -> Option<String> {
        let problems = self.problems.lock();
        let texts: Vec<String> = problems.values().cloned().collect();
        Some(texts.join(", ")).filter(|text| !text.is_empty())
    }
}
