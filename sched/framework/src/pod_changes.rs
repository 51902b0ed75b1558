//! The latest changes of the Pods on nodes, so that sums over Pods can follow them instead of being computed again.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::PodInfo;

/// The highest number of changes that are stored. With more of them, a new computation costs less.
const CHANGES_MAX: usize = 1_024;

/// The latest changes, numbered from the first one of all time.
#[derive(Clone, Debug, Default)]
pub struct PodChanges {
    /// The number of the oldest stored change.
    first: usize,
    changes: VecDeque<NumberedChange>,
}

/// A Pod that came to a node or left it.
#[derive(Clone, Debug)]
pub struct NumberedChange {
    /// The Pod.
    pub pod: Arc<PodInfo>,
    /// The name of the node.
    pub node: String,
    /// How many Pods there are more: 1 or -1.
    pub number: i64,
}

impl PodChanges {
    /// Adds a change.
    pub fn push(&mut self, pod: Arc<PodInfo>, node: &str, number: i64) {
        if self.changes.len() == CHANGES_MAX {
            self.changes.pop_front();
            self.first += 1;
        }
        self.changes.push_back(NumberedChange { pod, node: node.to_owned(), number });
    }

    /// The number of the next change.
    pub fn next(&self) -> usize {
        self.first + self.changes.len()
    }

    /// The changes from that number on; `None` when some of them are not stored any more.
    pub fn since(&self, number: usize) -> Option<impl Iterator<Item = &NumberedChange>> {
        let skipped = number.checked_sub(self.first)?;
        Some(self.changes.iter().skip(skipped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_changes_are_forgotten_and_the_reader_learns_it() {
        let mut changes = PodChanges::default();
        let start = changes.next();
        for _ in 0..CHANGES_MAX {
            changes.push(Arc::default(), "n", 1);
        }
        assert_eq!(changes.since(start).map(Iterator::count), Some(CHANGES_MAX));
        changes.push(Arc::default(), "n", -1);
        assert!(changes.since(start).is_none());
        assert_eq!(changes.since(start + 1).map(Iterator::count), Some(CHANGES_MAX));
        assert_eq!(changes.since(changes.next()).map(Iterator::count), Some(0));
    }
}
