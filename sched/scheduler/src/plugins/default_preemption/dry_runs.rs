//! What earlier cycles of Pods that are alike found on nodes. A node is tried again only after a change, so that the cost of a preemption
//! does not grow with the number of candidates.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use sched_framework::{DisruptionBudget, NodeInfo, NodeVersion, Preemption, Reason, Snapshot};

/// The victims on a node, or the reasons why the node is no candidate.
pub(super) type DryRun = Result<Arc<Preemption>, Vec<Reason>>;

/// The results for the Pods that share a cycle's state.
#[derive(Default)]
pub(super) struct DryRuns {
    budgets: Weak<HashMap<String, DisruptionBudget>>,
    /// By the index of the node in the snapshot.
    by_node: HashMap<usize, (NodeVersion, DryRun)>,
}

impl DryRuns {
    /// Drops all results after a change of budgets.
    pub fn follow(&mut self, snapshot: &Snapshot) {
        if self.budgets.as_ptr() != Arc::as_ptr(&snapshot.budgets) {
            *self = Self { budgets: Arc::downgrade(&snapshot.budgets), by_node: HashMap::new() };
        }
    }

    /// The result for the node, which `run` computes if the node or the Pods nominated to the node changed.
    pub fn result(&mut self, index: usize, node: &Arc<NodeInfo>, snapshot: &Snapshot, run: impl FnOnce() -> DryRun) -> &DryRun {
        let (version, dry_run) = self.by_node.entry(index).or_insert_with(|| (NodeVersion::default(), Err(Vec::new())));
        if !version.is_present(node, &snapshot.nominated) {
            *version = NodeVersion::of(node, &snapshot.nominated);
            *dry_run = run();
        }
        dry_run
    }
}
