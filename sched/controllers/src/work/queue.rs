//! client-go's rate-limiting work queue: keys without duplicates, one worker a key, delayed adds,
//! and exponential back-off for keys that fail.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Key;

/// First wait of a failing key, upstream's.
const BACKOFF_MIN: Duration = Duration::from_millis(5);
/// Longest wait of a failing key, upstream's.
const BACKOFF_MAX: Duration = Duration::from_secs(1000);
/// Retries a second of all keys together, upstream's.
const RETRIES_PER_SECOND: f64 = 10.0;
/// Number of immediate retries before that rate applies, upstream's.
const RETRY_BURST: f64 = 100.0;

/// A queue of keys. It has each key at most once, so the number of objects bounds its length.
#[derive(Debug)]
pub struct WorkQueue<K> {
    state: Mutex<State<K>>,
    wake: Notify,
}

#[derive(Debug)]
struct State<K> {
    ready: VecDeque<K>,
    /// To be worked on: in `ready`, or added again while in `processing`.
    dirty: HashSet<K>,
    processing: HashSet<K>,
    later: BTreeSet<(Instant, K)>,
    due: HashMap<K, Instant>,
    failures: HashMap<K, u32>,
    tokens: f64,
    tokens_at: Option<Instant>,
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        let state = State {
            ready: VecDeque::new(),
            dirty: HashSet::new(),
            processing: HashSet::new(),
            later: BTreeSet::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
            tokens: RETRY_BURST,
            tokens_at: None,
        };
        Self { state: Mutex::new(state), wake: Notify::new() }
    }
}

impl<K: Key> WorkQueue<K> {
    /// Requests a pass over `key` as soon as a worker is free.
    pub fn add(&self, key: K) {
        self.state.lock().add(key);
        self.wake.notify_one();
    }

    /// Requests a pass after `delay`; an earlier request for the same key stays.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        self.state.lock().add_at(key, Instant::now() + delay);
        self.wake.notify_one();
    }

    /// Requests another pass over a key whose pass failed, later each time up to `at_most`.
    pub fn add_rate_limited(&self, key: K, at_most: Duration) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let delay = state.backoff(&key, now).min(at_most);
        state.add_at(key, now + delay);
        drop(state);
        self.wake.notify_one();
    }

    /// Ends the back-off of a key whose pass went well.
    pub fn forget(&self, key: &K) {
        self.state.lock().failures.remove(key);
    }

    /// Ends the work on a key that [`WorkQueue::next`] returned.
    pub fn done(&self, key: &K) {
        let mut state = self.state.lock();
        if state.processing.remove(key) && state.dirty.contains(key) {
            state.ready.push_back(key.clone());
            drop(state);
            self.wake.notify_one();
        }
    }

    /// The next key, which is being processed until [`WorkQueue::done`]. For one caller at a time; dropping the future loses
    /// nothing.
    pub async fn next(&self) -> K {
        loop {
            let due = match self.state.lock().take(Instant::now()) {
                Ok(key) => return key,
                Err(due) => due,
            };
            match due {
                None => self.wake.notified().await,
                Some(at) => tokio::select! {
                    () = self.wake.notified() => {}
                    () = tokio::time::sleep_until(at) => {}
                },
            }
        }
    }
}

impl<K: Key> State<K> {
    fn add(&mut self, key: K) {
        if self.dirty.insert(key.clone()) && !self.processing.contains(&key) {
            self.ready.push_back(key);
        }
    }

    fn add_at(&mut self, key: K, at: Instant) {
        if let Some(earlier) = self.due.get(&key).copied() {
            if earlier <= at {
                return;
            }
            self.later.remove(&(earlier, key.clone()));
        }
        self.due.insert(key.clone(), at);
        self.later.insert((at, key));
    }

    /// A key to process, or the time at which the next delayed key is due.
    fn take(&mut self, now: Instant) -> Result<K, Option<Instant>> {
        while let Some((at, _)) = self.later.first() {
            if *at > now {
                break;
            }
            if let Some((_, key)) = self.later.pop_first() {
                self.due.remove(&key);
                self.add(key);
            }
        }
        let Some(key) = self.ready.pop_front() else {
            return Err(self.later.first().map(|(at, _)| *at));
        };
        self.dirty.remove(&key);
        self.processing.insert(key.clone());
        Ok(key)
    }

    fn backoff(&mut self, key: &K, now: Instant) -> Duration {
        let failures = self.failures.entry(key.clone()).or_insert(0);
        let exponential = BACKOFF_MIN.saturating_mul(1_u32.checked_shl(*failures).unwrap_or(u32::MAX)).min(BACKOFF_MAX);
        *failures = failures.saturating_add(1);
        let since = self.tokens_at.replace(now).map_or(0.0, |at| now.duration_since(at).as_secs_f64());
        self.tokens = since.mul_add(RETRIES_PER_SECOND, self.tokens).min(RETRY_BURST) - 1.0;
        let shared = Duration::from_secs_f64((-self.tokens).max(0.0) / RETRIES_PER_SECOND);
        exponential.max(shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, start: Instant) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn a_key_added_twice_is_worked_on_once() {
        let queue = WorkQueue::default();
        queue.add("a");
        queue.add("a");
        let now = Instant::now();
        assert_eq!(queue.state.lock().take(now), Ok("a"));
        assert_eq!(queue.state.lock().take(now), Err(None));
    }

    #[test]
    fn a_key_added_while_worked_on_waits_for_the_pass_to_end() {
        let queue = WorkQueue::default();
        let now = Instant::now();
        queue.add("a");
        assert_eq!(queue.state.lock().take(now), Ok("a"));
        queue.add("a");
        assert_eq!(queue.state.lock().take(now), Err(None));
        queue.done(&"a");
        assert_eq!(queue.state.lock().take(now), Ok("a"));
        queue.done(&"a");
        assert_eq!(queue.state.lock().take(now), Err(None));
    }

    #[test]
    fn the_earliest_delay_stands() {
        let queue: WorkQueue<&str> = WorkQueue::default();
        let start = Instant::now();
        let mut state = queue.state.lock();
        state.add_at("a", at(100, start));
        state.add_at("a", at(500, start));
        state.add_at("a", at(50, start));
        assert_eq!(state.take(start), Err(Some(at(50, start))));
        assert_eq!(state.take(at(50, start)), Ok("a"));
        state.processing.clear();
        assert_eq!(state.take(at(900, start)), Err(None), "the later wishes went with the earlier");
    }

    #[test]
    fn failures_back_off_and_success_forgets() {
        let queue: WorkQueue<&str> = WorkQueue::default();
        let now = Instant::now();
        let mut state = queue.state.lock();
        let waits: Vec<u128> = (0..4).map(|_| state.backoff(&"a", now).as_millis()).collect();
        assert_eq!(waits, [5, 10, 20, 40]);
        drop(state);
        queue.forget(&"a");
        assert_eq!(queue.state.lock().backoff(&"a", now).as_millis(), 5);
        let longest = (0..40).map(|_| queue.state.lock().backoff(&"b", now)).max();
        assert_eq!(longest, Some(BACKOFF_MAX));
    }

    #[test]
    fn many_failing_keys_share_a_rate() {
        let queue: WorkQueue<u32> = WorkQueue::default();
        let now = Instant::now();
        let mut state = queue.state.lock();
        let last = (0..200).map(|key| state.backoff(&key, now)).last();
        assert_eq!(last, Some(Duration::from_secs(10)));
    }

    #[tokio::test(start_paused = true)]
    async fn delayed_keys_come_when_due() {
        let queue = WorkQueue::default();
        let start = Instant::now();
        queue.add_after("late", Duration::from_secs(60));
        queue.add_after("soon", Duration::from_secs(5));
        assert_eq!(queue.next().await, "soon");
        assert_eq!(start.elapsed().as_secs(), 5);
        assert_eq!(queue.next().await, "late");
        assert_eq!(start.elapsed().as_secs(), 60);
    }
}
