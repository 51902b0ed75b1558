//! A fair queue for work whose duration guests control: pulls from foreign registries, and compilation of modules. No namespace
//! may have all running work. Of the waiting namespaces, the one with the least running work is next. Work that runs for
//! long no longer counts against the limit, up to a second limit, so that a few slow registries do not block all images.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The limits of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueLimits {
    /// In all, for work that has not lasted for long.
    pub(crate) all: usize,
    /// The limit of one namespace, however long its work takes.
    pub(crate) of_namespace: usize,
    /// Additional permits for work that has run for `slow_after`.
    pub(crate) slow: usize,
    /// When work counts as slow.
    pub(crate) slow_after: Duration,
}

/// The queue.
#[derive(Clone, Debug)]
pub(crate) struct FairQueue(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    limits: QueueLimits,
    /// When each piece of work began, by its number.
    running: HashMap<u64, (String, Instant)>,
    waiting: Vec<(String, oneshot::Sender<Permit>)>,
    next: u64,
}

/// A permit to run, which is returned when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    queue: FairQueue,
    number: u64,
}

impl FairQueue {
    pub(crate) fn new(limits: QueueLimits) -> Self {
        Self(Arc::new(Mutex::new(State { limits, running: HashMap::new(), waiting: Vec::new(), next: 0 })))
    }

    /// Waits for a permit. Dropping the future returns it.
    pub(crate) async fn acquire(&self, namespace: &str) -> Permit {
        loop {
            let (sender, mut receiver) = oneshot::channel();
            self.0.lock().waiting.push((namespace.to_owned(), sender));
            loop {
                let look_again = self.grant();
                tokio::select! {
                    granted = &mut receiver => match granted {
                        Ok(permit) => return permit,
                        // Not while the queue lives; waiting anew is right in any case.
                        Err(_) => break,
                    },
                    () = until(look_again) => {}
                }
            }
        }
    }

    /// Gives permits to the waiters that may have one; returns when work becomes slow next, which frees a permit.
    fn grant(&self) -> Option<Instant> {
        loop {
            let (sender, permit) = {
                let mut state = self.0.lock();
                state.waiting.retain(|(_, sender)| !sender.is_closed());
                let now = Instant::now();
                let Some(index) = state.choose(now) else { return state.slow_next(now) };
                let (namespace, sender) = state.waiting.remove(index);
                let number = state.next;
                state.next += 1;
                state.running.insert(number, (namespace, now));
                (sender, Permit { queue: self.clone(), number })
            };
            // A waiter that has given up meanwhile returns its permit here, outside of the lock.
            drop(sender.send(permit));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.queue.0.lock().running.remove(&self.number);
        self.queue.grant();
    }
}

impl State {
    /// The next waiter, if one may run.
    fn choose(&self, now: Instant) -> Option<usize> {
        let slow = self.running.values().filter(|(_, begun)| now.duration_since(*begun) >= self.limits.slow_after).count();
        if self.running.len() - slow.min(self.limits.slow) >= self.limits.all {
            return None;
        }
        let running = |namespace: &str| self.running.values().filter(|(holder, _)| holder == namespace).count();
        let counts = self.waiting.iter().enumerate().map(|(index, (namespace, _))| (running(namespace), index));
        counts.filter(|(running, _)| *running < self.limits.of_namespace).min().map(|(_, index)| index)
    }

    fn slow_next(&self, now: Instant) -> Option<Instant> {
        let slow_at = self.running.values().map(|(_, begun)| *begun + self.limits.slow_after);
        slow_at.filter(|at| *at > now).min()
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: QueueLimits = QueueLimits { all: 4, of_namespace: 3, slow: 4, slow_after: Duration::from_secs(60) };

    /// Whether a permit is granted at once.
    async fn at_once(queue: &FairQueue, namespace: &str) -> Option<Permit> {
        tokio::time::timeout(Duration::from_millis(1), queue.acquire(namespace)).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn one_namespace_leaves_a_permit_to_others_and_long_work_makes_room() {
        let queue = FairQueue::new(PLACES);
        let mut permits = Vec::new();
        for _ in 0..3 {
            permits.push(at_once(&queue, "greedy").await.expect("a place"));
        }
        assert!(at_once(&queue, "greedy").await.is_none(), "its share is used up");
        permits.push(at_once(&queue, "modest").await.expect("the last place"));
        assert!(at_once(&queue, "third").await.is_none(), "all places are taken");
        let begun = Instant::now();
        let late = tokio::time::timeout(Duration::from_secs(61), queue.acquire("third")).await.expect("room beside slow work");
        assert!(begun.elapsed() > Duration::from_secs(50));
        assert!(at_once(&queue, "greedy").await.is_none(), "slow work counts for its namespace");
        drop((permits, late));
        assert_eq!(queue.0.lock().running.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_the_fewest_goes_first_and_who_gives_up_holds_nothing() {
        let queue = FairQueue::new(QueueLimits { all: 2, of_namespace: 2, slow: 0, slow_after: Duration::from_secs(60) });
        let (first, second) = (queue.acquire("greedy").await, queue.acquire("greedy").await);
        let (granted, mut order) = tokio::sync::mpsc::unbounded_channel();
        for namespace in ["greedy", "greedy", "modest"] {
            let (queue, granted) = (queue.clone(), granted.clone());
            tokio::spawn(async move {
                let permit = queue.acquire(namespace).await;
                granted.send((namespace, permit)).expect("heard");
            });
            tokio::task::yield_now().await;
        }
        assert!(at_once(&queue, "impatient").await.is_none());
        drop(first);
        let (next, permit) = order.recv().await.expect("one");
        assert_eq!(next, "modest");
        drop((second, permit));
        assert_eq!(order.recv().await.expect("one").0, "greedy");
    }
}
