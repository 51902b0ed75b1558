//! Instances that have handled a request and wait for the next one, of guests whose container allows it. An instance handles a bounded
//! number of requests and waits for a bounded time. Only one that returned from its request, has answered it and has ended the answer
//! is used again: one that trapped, or whose client left or whose time was over before it returned, is dropped with its request.
//!
//! Instances that wait take no permit, and are taken before a new one is created. So there are never more of them than there are permits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// The instances that wait, of any kind.
pub struct Instances<T> {
    waiting: Mutex<Waiting<T>>,
    requests_max: u32,
    idle_limit: Duration,
}

struct Waiting<T> {
    /// Each with the time since which it waits; the first has waited for longest.
    instances: VecDeque<(Instant, Reusable<T>)>,
    /// Something will remove those that wait for too long.
    is_swept: bool,
}

/// An instance and the number of requests that it has handled.
pub struct Reusable<T> {
    /// The instance.
    pub instance: T,
    requests: u32,
}

impl<T> Reusable<T> {
    /// A new instance.
    pub fn new(instance: T) -> Self {
        Self { instance, requests: 0 }
    }
}

impl<T: Send + 'static> Instances<T> {
    /// Each instance handles so many requests, at least one, and waits so long for the next.
    pub fn new(requests_max: u32, idle_limit: Duration) -> Self {
        Self { waiting: Mutex::new(Waiting { instances: VecDeque::new(), is_swept: false }), requests_max, idle_limit }
    }

    /// The instance that has waited for the shortest time, so that the others can end when there is less to do.
    pub fn take(&self) -> Option<Reusable<T>> {
        if self.requests_max == 1 {
            return None;
        }
        self.waiting.lock().instances.pop_back().map(|(_, instance)| instance)
    }

    /// The instance has handled a request, and may handle another unless it has reached its number.
    pub fn put(self: &Arc<Self>, mut instance: Reusable<T>) {
        instance.requests = instance.requests.saturating_add(1);
        if instance.requests >= self.requests_max {
            return;
        }
        let mut waiting = self.waiting.lock();
        waiting.instances.push_back((Instant::now(), instance));
        if !std::mem::replace(&mut waiting.is_swept, true) {
            tokio::spawn(self.clone().sweep());
        }
    }

    /// Drops each instance that has waited for too long, until none waits.
    async fn sweep(self: Arc<Self>) {
        while let Some(next) = self.drop_old(Instant::now()) {
            sleep_until(next).await;
        }
    }

    /// When the next one will have waited for too long; `None` when none waits.
    fn drop_old(&self, now: Instant) -> Option<Instant> {
        let mut waiting = self.waiting.lock();
        let is_old = |(since, _): &(Instant, Reusable<T>)| *since + self.idle_limit <= now;
        let old = waiting.instances.iter().take_while(|instance| is_old(instance)).count();
        let old: Vec<_> = waiting.instances.drain(..old).collect();
        let next = waiting.instances.front().map(|(since, _)| *since + self.idle_limit);
        waiting.is_swept = next.is_some();
        // Dropping an instance takes time, which nobody has to wait for.
        drop(waiting);
        drop(old);
        next
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const IDLE: Duration = Duration::from_millis(40);

    fn new(requests_max: u32) -> Arc<Instances<Arc<()>>> {
        Arc::new(Instances::new(requests_max, IDLE))
    }

    #[tokio::test]
    async fn an_instance_handles_its_number_of_requests() {
        let (once, thrice) = (new(1), new(3));
        once.put(Reusable::new(Arc::default()));
        assert!(once.take().is_none(), "one request for each instance");
        let (old, young) = (Arc::new(()), Arc::new(()));
        thrice.put(Reusable::new(old.clone()));
        thrice.put(Reusable::new(young.clone()));
        for _ in 0..2 {
            let taken = thrice.take().unwrap();
            assert!(Arc::ptr_eq(&taken.instance, &young), "the one that was used last");
            thrice.put(taken);
        }
        assert!(Arc::ptr_eq(&thrice.take().unwrap().instance, &old), "the other one has handled three");
        assert!(thrice.take().is_none());
        assert_eq!(Arc::strong_count(&young), 1, "it was dropped");
    }

    #[tokio::test]
    async fn an_instance_waits_for_its_time() {
        let instances = new(u32::MAX);
        let instance = Arc::new(());
        for _ in 0..2 {
            instances.put(Reusable::new(instance.clone()));
            let deadline = Instant::now() + Duration::from_secs(20);
            while Arc::strong_count(&instance) > 1 {
                assert!(Instant::now() < deadline);
                tokio::time::sleep(IDLE / 8).await;
            }
            assert!(instances.take().is_none());
        }
        let begun = Instant::now();
        instances.put(Reusable::new(instance.clone()));
        assert!(instances.drop_old(begun).is_some(), "not yet");
        assert!(instances.drop_old(begun + IDLE * 20).is_none());
        assert_eq!(Arc::strong_count(&instance), 1);
    }
}
