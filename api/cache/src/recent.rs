//! The values of objects that were parsed lately. An object that was just read or written is likely to be used again soon.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

/// Maximum size of the JSON of all kept values. The values take about five times as much memory.
const JSON_BYTES_MAX: usize = 512 << 10;

/// Keeps values alive; the oldest are dropped first.
#[derive(Debug, Default)]
pub struct Recent(Mutex<RecentValues>);

#[derive(Debug, Default)]
struct RecentValues {
    values: VecDeque<(Arc<Value>, usize)>,
    bytes: usize,
}

impl Recent {
    /// Keeps a value whose JSON has so many bytes.
    pub(super) fn keep(&self, value: &Arc<Value>, bytes: usize) {
        let mut oldest = Vec::new();
        let mut recent = self.0.lock();
        recent.bytes += bytes;
        recent.values.push_back((Arc::clone(value), bytes));
        while recent.bytes > JSON_BYTES_MAX
            && let Some((value, bytes)) = recent.values.pop_front()
        {
            recent.bytes -= bytes;
            oldest.push(value);
        }
        // Freeing a value takes longer than anything else here, so it happens outside of the lock.
        drop(recent);
        drop(oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_let_go() {
        let recent = Recent::default();
        let values: Vec<Arc<Value>> = (0..5).map(|n| Arc::new(Value::from(n))).collect();
        for value in &values {
            recent.keep(value, JSON_BYTES_MAX / 3);
        }
        let is_shared: Vec<bool> = values.iter().map(|value| Arc::strong_count(value) == 2).collect();
        assert_eq!(is_shared, [false, false, true, true, true]);
        recent.keep(&values[0], JSON_BYTES_MAX + 1);
        assert!(values.iter().all(|value| Arc::strong_count(value) == 1), "one that is too large takes all others with it");
    }
}
