//! The latest changes of something, so that results that depend on it can follow them instead of being computed again.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::PodInfo;

/// The highest number of changes that are stored. With more of them, a new computation costs less.
const CHANGES_MAX: usize = 1_024;

/// The latest changes, numbered from the first one of all time.
#[derive(Clone, Debug)]
pub struct Changes<T> {
    /// The number of the oldest stored change.
    first: usize,
    latest: VecDeque<T>,
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

impl<T> Default for Changes<T> {
    fn default() -> Self {
        Self { first: 0, latest: VecDeque::new() }
    }
}

impl<T> Changes<T> {
    /// Adds a change.
    pub fn push(&mut self, change: T) {
        if self.latest.len() == CHANGES_MAX {
            self.latest.pop_front();
            self.first += 1;
        }
        self.latest.push_back(change);
    }

    /// The number of the next change.
    pub fn next(&self) -> usize {
        self.first + self.latest.len()
    }

    /// The changes from that number on; `None` when some of them are not stored any more.
    pub fn since(&self, number: usize) -> Option<impl Iterator<Item = &T>> {
        let skipped = number.checked_sub(self.first)?;
        Some(self.latest.range(skipped.min(self.latest.len())..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_changes_are_forgotten_and_the_reader_learns_it() {
        let mut changes = Changes::default();
        let start = changes.next();
        (0..CHANGES_MAX).for_each(|number| changes.push(number));
        assert_eq!(changes.since(start).map(Iterator::count), Some(CHANGES_MAX));
        changes.push(CHANGES_MAX);
        assert!(changes.since(start).is_none());
        assert_eq!(changes.since(start + 1).map(Iterator::count), Some(CHANGES_MAX));
        assert_eq!(changes.since(changes.next()).map(Iterator::count), Some(0));
    }
}
