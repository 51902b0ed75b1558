//! The values of objects that were parsed lately. An object that was just read or written is likely to be used again soon.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

/// Maximum size of the JSON of all kept values. The values take about five times as much memory.
const JSON_BYTES_MAX: usize = 512 << 10;

/// How long a value stays: until the first value that comes after this time.
const RETENTION: Duration = Duration::from_secs(60);

/// Keeps values alive; the oldest are dropped first.
#[derive(Debug, Default)]
pub struct Recent(Mutex<RecentValues>);

#[derive(Debug, Default)]
struct RecentValues {
    values: VecDeque<RecentValue>,
    bytes: usize,
}

#[derive(Debug)]
struct RecentValue {
    /// The object that the value was parsed from finds it as long as it is here.
    _value: Arc<Value>,
    bytes: usize,
    at: Instant,
}

impl Recent {
    /// Keeps a value whose JSON has so many bytes.
    pub(super) fn keep(&self, value: &Arc<Value>, bytes: usize) {
        let (mut oldest, at) = (Vec::new(), Instant::now());
        let mut recent = self.0.lock();
        recent.bytes += bytes;
        recent.values.push_back(RecentValue { _value: Arc::clone(value), bytes, at });
        while recent.values.front().is_some_and(|oldest| recent.bytes > JSON_BYTES_MAX || at.duration_since(oldest.at) > RETENTION)
            && let Some(value) = recent.values.pop_front()
        {
            recent.bytes -= value.bytes;
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

    #[tokio::test(start_paused = true)]
    async fn old_values_are_let_go() {
        let recent = Recent::default();
        let [first, second, third] = [1, 2, 3].map(|n| Arc::new(Value::from(n)));
        recent.keep(&first, 10);
        tokio::time::advance(RETENTION / 2).await;
        recent.keep(&second, 10);
        tokio::time::advance(RETENTION / 2 + Duration::from_millis(1)).await;
        recent.keep(&third, 10);
        let counts = [&first, &second, &third].map(Arc::strong_count);
        assert_eq!(counts, [1, 2, 2]);
    }
}
