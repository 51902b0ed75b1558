//! Values for the latest kinds of Pods, so that the Pods of several workloads can take turns.

/// The number of values that are kept. Each may have an entry for each node.
const LEN_MAX: usize = 4;

/// A few values, the latest one last.
pub(super) struct Recent<T>(Vec<T>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Recent<T> {
    /// Takes the value that `is_wanted` finds.
    pub fn take(&mut self, is_wanted: impl Fn(&T) -> bool) -> Option<T> {
        self.0.iter().rposition(is_wanted).map(|index| self.0.remove(index))
    }

    /// Stores a value, in place of the oldest one when there are too many.
    pub fn put(&mut self, value: T) {
        if self.0.len() == LEN_MAX {
            self.0.remove(0);
        }
        self.0.push(value);
    }
}
