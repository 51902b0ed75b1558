//! How far the instances of one container may grow, all together: one budget for the bytes by which their memories, tables and
//! heaps of the GC proposal grow. The initial size of an instance does not count: it is mostly a mapping of the compiled file
//! without pages of its own.

use std::sync::Arc;

use wasmtime::ResourceLimiter;

use crate::budget::Budget;

/// Bytes of a table's element.
const ELEMENT_LEN: usize = 16;
/// The elements of one table: far more than compilers create.
const TABLE_LEN_MAX: usize = 1 << 22;
/// The highest number of instances in one component or module, including nested ones.
const INSTANCES_MAX: usize = 1_000;
const TABLES_MAX: usize = 1_000;
const MEMORIES_MAX: usize = 100;

/// The share of one instance, which is returned when it is dropped.
pub struct Limits {
    budget: Arc<Budget>,
    taken: usize,
    /// The bytes of the growth in progress.
    growing: usize,
    /// The instance exists, so that a memory or heap that was empty until now counts when it grows.
    is_instantiated: bool,
}

impl Limits {
    /// Of an instance that has not grown.
    pub fn new(budget: &Arc<Budget>) -> Self {
        Self { budget: budget.clone(), taken: 0, growing: 0, is_instantiated: false }
    }

    /// The instance has been created: from now on every growth counts.
    pub fn count_all(&mut self) {
        self.is_instantiated = true;
    }

    /// Whether something may grow by so many bytes, to so many.
    fn grow(&mut self, by: usize, to: usize) -> bool {
        let may = to <= self.budget.bytes_max() && self.budget.take(by);
        self.growing = if may { by } else { 0 };
        self.taken += self.growing;
        may
    }

    /// Returns the bytes of the growth in progress, which failed, to the budget.
    fn undo(&mut self) {
        self.taken -= self.growing;
        self.budget.give_back(std::mem::take(&mut self.growing));
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        self.budget.give_back(self.taken);
    }
}

impl ResourceLimiter for Limits {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let by = if current == 0 && !self.is_instantiated { 0 } else { desired.saturating_sub(current) };
        self.growing = 0;
        Ok(maximum.is_none_or(|maximum| desired <= maximum) && self.grow(by, desired))
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.undo();
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let by = desired.saturating_sub(current).saturating_mul(ELEMENT_LEN);
        self.growing = 0;
        let fits = desired <= maximum.unwrap_or(usize::MAX).min(TABLE_LEN_MAX);
        Ok(fits && self.grow(by, desired.saturating_mul(ELEMENT_LEN)))
    }

    fn table_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.undo();
        Ok(())
    }

    fn instances(&self) -> usize {
        INSTANCES_MAX
    }

    fn tables(&self) -> usize {
        TABLES_MAX
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_share_what_the_container_has() {
        let budget = Arc::new(Budget::new(Some(1000)));
        let (mut one, mut two) = (Limits::new(&budget), Limits::new(&budget));
        assert!(one.memory_growing(0, 900, None).unwrap(), "a first size is not counted");
        assert!(!one.memory_growing(0, 1001, None).unwrap(), "but it must fit");
        assert!(one.memory_growing(100, 700, None).unwrap());
        assert!(!two.memory_growing(100, 600, None).unwrap());
        assert!(two.table_growing(0, 25, None).unwrap());
        assert!(!two.table_growing(25, 26, None).unwrap());
        assert!(!two.memory_growing(0, 10, Some(5)).unwrap(), "its own maximum holds");
        drop(one);
        assert!(two.memory_growing(100, 600, None).unwrap());
        two.memory_grow_failed(wasmtime::Error::msg("no room")).unwrap();
        assert!(two.memory_growing(100, 700, None).unwrap());
        drop(two);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_memory_that_was_empty_counts_once_its_instance_exists() {
        let budget = Arc::new(Budget::new(Some(1000)));
        let mut limits = Limits::new(&budget);
        assert!(limits.memory_growing(0, 900, None).unwrap());
        limits.count_all();
        assert!(limits.memory_growing(0, 700, None).unwrap());
        assert!(!limits.memory_growing(0, 700, None).unwrap(), "a second one does not fit beside it");
        assert_eq!(budget.used(), 700);
    }

    #[test]
    fn tables_end_somewhere_also_without_a_limit() {
        let mut limits = Limits::new(&Arc::new(Budget::new(None)));
        assert!(limits.memory_growing(1, usize::MAX / 2, None).unwrap());
        assert!(!limits.table_growing(0, 1 << 32, None).unwrap());
    }
}
