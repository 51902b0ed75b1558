//! What earlier cycles of Pods that are alike found on nodes. A node is tried again only after a change, so that the cost of a preemption
//! does not grow with the number of candidates.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use sched_framework::{DisruptionBudget, NodeResults, Preemption, Reason, Snapshot};

/// The victims on a node, or the reasons why the node is no candidate.
pub(super) type DryRun = Result<Arc<Preemption>, Vec<Reason>>;

/// The results for the Pods that share a cycle's state.
#[derive(Default)]
pub(super) struct DryRuns {
    budgets: Weak<HashMap<String, DisruptionBudget>>,
    pub results: NodeResults<DryRun>,
}

impl DryRuns {
    /// Drops all results after a change of budgets.
    pub fn follow(&mut self, snapshot: &Snapshot) {
        if self.budgets.as_ptr() != Arc::as_ptr(&snapshot.budgets) {
            *self = Self { budgets: Arc::downgrade(&snapshot.budgets), results: NodeResults::default() };
        }
    }
}
