//! client-go's rate-limiting work queue: keys without duplicates, one worker a key, delayed adds,
//! and exponential back-off for keys that fail.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Key;
use super::meter::Meter;

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
    meter: Arc<Meter>,
    /// First and longest wait of a failing key.
    backoff: (Duration, Duration),
}

#[derive(Debug)]
struct State<K> {
    ready: VecDeque<K>,
    /// To be worked on: in `ready`, or added again while in `processing`. With the time of the addition.
    dirty: HashMap<K, Instant>,
    /// With the time at which the pass began.
    processing: HashMap<K, Instant>,
    later: BTreeSet<(Instant, K)>,
    due: HashMap<K, Instant>,
    failures: HashMap<K, u32>,
    tokens: f64,
    tokens_at: Option<Instant>,
}

impl<K> WorkQueue<K> {
    /// An empty queue. `name` is its name in the metrics, upstream's where upstream has the queue.
    pub fn new(name: &'static str) -> Self {
        Self::with_backoff(name, BACKOFF_MIN, BACKOFF_MAX)
    }

    /// An empty queue in which a failing key waits for `first`, then for twice as long each time, up to `longest`.
    pub fn with_backoff(name: &'static str, first: Duration, longest: Duration) -> Self {
        let state = State {
            ready: VecDeque::new(),
            dirty: HashMap::new(),
            processing: HashMap::new(),
            later: BTreeSet::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
            tokens: RETRY_BURST,
            tokens_at: None,
        };
        Self { state: Mutex::new(state), wake: Notify::new(), meter: Meter::new(name), backoff: (first, longest) }
    }
}

impl<K: Key> WorkQueue<K> {
    /// Requests a pass over `key` as soon as a worker is free.
    pub fn add(&self, key: K) {
        self.state.lock().add(key, Instant::now(), &self.meter);
        self.wake.notify_one();
    }

    /// Requests a pass after `delay`; an earlier request for the same key stays.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.meter.delayed();
        if delay.is_zero() {
            return self.add(key);
        }
        self.state.lock().add_at(key, Instant::now() + delay);
        self.wake.notify_one();
    }

    /// Requests another pass over a key whose pass failed, later each time up to `at_most`.
    pub fn add_rate_limited(&self, key: K, at_most: Duration) {
        self.meter.delayed();
        let now = Instant::now();
        let mut state = self.state.lock();
        let delay = state.backoff(&key, now, self.backoff).min(at_most);
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
        let Some(began) = state.processing.remove(key) else { return };
        self.meter.ended(began, Instant::now());
        if state.dirty.contains_key(key) {
            state.ready.push_back(key.clone());
            drop(state);
            self.wake.notify_one();
        }
    }

    /// The next key, which is being processed until [`WorkQueue::done`]. For one caller at a time; dropping the future loses
    /// nothing.
    pub async fn next(&self) -> K {
        loop {
            let due = match self.state.lock().take(Instant::now(), &self.meter) {
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
    fn add(&mut self, key: K, now: Instant, meter: &Meter) {
        if self.dirty.contains_key(&key) {
            return;
        }
        meter.added();
        self.dirty.insert(key.clone(), now);
        if !self.processing.contains_key(&key) {
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
    fn take(&mut self, now: Instant, meter: &Meter) -> Result<K, Option<Instant>> {
        while let Some((at, _)) = self.later.first() {
            if *at > now {
                break;
            }
            if let Some((_, key)) = self.later.pop_first() {
                self.due.remove(&key);
                self.add(key, now, meter);
            }
        }
        let Some(key) = self.ready.pop_front() else {
            return Err(self.later.first().map(|(at, _)| *at));
        };
        meter.began(self.dirty.remove(&key).unwrap_or(now), now);
        self.processing.insert(key.clone(), now);
        Ok(key)
    }

    fn backoff(&mut self, key: &K, now: Instant, (first, longest): (Duration, Duration)) -> Duration {
        let failures = self.failures.entry(key.clone()).or_insert(0);
        let exponential = first.saturating_mul(1_u32.checked_shl(*failures).unwrap_or(u32::MAX)).min(longest);
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

    fn take<K: Key>(queue: &WorkQueue<K>, now: Instant) -> Result<K, Option<Instant>> {
        queue.state.lock().take(now, &queue.meter)
    }

    #[test]
    fn a_key_added_twice_is_worked_on_once() {
        let queue = WorkQueue::new("test");
        queue.add("a");
        queue.add("a");
        let now = Instant::now();
        assert_eq!(take(&queue, now), Ok("a"));
        assert_eq!(take(&queue, now), Err(None));
    }

    #[test]
    fn a_key_added_while_worked_on_waits_for_the_pass_to_end() {
        let queue = WorkQueue::new("test");
        let now = Instant::now();
        queue.add("a");
        assert_eq!(take(&queue, now), Ok("a"));
        queue.add("a");
        assert_eq!(take(&queue, now), Err(None));
        queue.done(&"a");
        assert_eq!(take(&queue, now), Ok("a"));
        queue.done(&"a");
        assert_eq!(take(&queue, now), Err(None));
    }

    #[test]
    fn the_earliest_delay_stands() {
        let queue: WorkQueue<&str> = WorkQueue::new("test");
        let start = Instant::now();
        let mut state = queue.state.lock();
        state.add_at("a", at(100, start));
        state.add_at("a", at(500, start));
        state.add_at("a", at(50, start));
        assert_eq!(state.take(start, &queue.meter), Err(Some(at(50, start))));
        assert_eq!(state.take(at(50, start), &queue.meter), Ok("a"));
        state.processing.clear();
        assert_eq!(state.take(at(900, start), &queue.meter), Err(None), "the later wishes went with the earlier");
    }

    #[test]
    fn failures_back_off_and_success_forgets() {
        let queue: WorkQueue<&str> = WorkQueue::new("test");
        let now = Instant::now();
        let mut state = queue.state.lock();
        let waits: Vec<u128> = (0..4).map(|_| state.backoff(&"a", now, queue.backoff).as_millis()).collect();
        assert_eq!(waits, [5, 10, 20, 40]);
        drop(state);
        queue.forget(&"a");
        assert_eq!(queue.state.lock().backoff(&"a", now, queue.backoff).as_millis(), 5);
        let longest = (0..40).map(|_| queue.state.lock().backoff(&"b", now, queue.backoff)).max();
        assert_eq!(longest, Some(BACKOFF_MAX));
        let seconds = |number| Duration::from_secs(number);
        let queue: WorkQueue<&str> = WorkQueue::with_backoff("test", seconds(1), seconds(3));
        let waits: Vec<u64> = (0..3).map(|_| queue.state.lock().backoff(&"a", now, queue.backoff).as_secs()).collect();
        assert_eq!(waits, [1, 2, 3]);
    }

    #[test]
    fn many_failing_keys_share_a_rate() {
        let queue: WorkQueue<u32> = WorkQueue::new("test");
        let now = Instant::now();
        let mut state = queue.state.lock();
        let last = (0..200).map(|key| state.backoff(&key, now, queue.backoff)).last();
        assert_eq!(last, Some(Duration::from_secs(10)));
    }

    #[tokio::test(start_paused = true)]
    async fn delayed_keys_come_when_due() {
        let queue = WorkQueue::new("test");
        let start = Instant::now();
        queue.add_after("late", Duration::from_secs(60));
        queue.add_after("soon", Duration::from_secs(5));
        assert_eq!(queue.next().await, "soon");
        assert_eq!(start.elapsed().as_secs(), 5);
        assert_eq!(queue.next().await, "late");
        assert_eq!(start.elapsed().as_secs(), 60);
    }
}
