//! The order of runs: small inputs do not wait behind large ones. Large inputs may use all permits but one.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The permits for processes that run at the same time.
#[derive(Clone, Debug)]
pub struct Slots {
    all: Arc<Semaphore>,
    large: Arc<Semaphore>,
    large_from: u64,
}

/// One permit, which is returned when it is dropped.
#[derive(Debug)]
pub struct Slot {
    _one: Option<OwnedSemaphorePermit>,
    _large: Option<OwnedSemaphorePermit>,
}

impl Slots {
    /// So many permits, at least two; inputs of `large_from` bytes and more are large.
    pub fn new(count: usize, large_from: u64) -> Self {
        let count = count.max(2);
        Self { all: Arc::new(Semaphore::new(count)), large: Arc::new(Semaphore::new(count - 1)), large_from }
    }

    /// Waits for a permit for an input of that many bytes. Among inputs of its size, first come, first served.
    pub async fn acquire(&self, bytes: u64) -> Slot {
        // The semaphores are never closed, so there is always a permit in the end.
        let large = if bytes >= self.large_from { self.large.clone().acquire_owned().await.ok() } else { None };
        Slot { _one: self.all.clone().acquire_owned().await.ok(), _large: large }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_small_input_passes_any_number_of_large_ones() {
        let slots = Slots::new(2, 100);
        let first = slots.acquire(100).await;
        let (waiting, others) = (slots.clone(), slots.clone());
        let second = tokio::spawn(async move { waiting.acquire(1 << 30).await });
        let third = tokio::spawn(async move { others.acquire(1 << 30).await });
        tokio::task::yield_now().await;
        let small = tokio::time::timeout(Duration::from_secs(1), slots.acquire(99)).await.expect("a place for a small one");
        assert!(!second.is_finished() && !third.is_finished());
        drop((first, small));
        let second = second.await.expect("its turn came");
        drop(second);
        third.await.expect("and this one's");
    }
}
