//! Shares the threads between guests that compute for long and all other work. A guest that computes yields at each tick, and would
//! then be one of all that wait for the thread: sixty of them would make each step of a short request wait for sixty ticks. So a guest
//! that has used up a slice of time needs a permit for its next one, and there are as many permits as threads. Short requests and
//! connections need none: on their thread they wait for one slice at most. Nor do probes, whatever they cost.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

/// A guest that computed so long without a pause computes for long. It is less than a tick, so that a whole slice counts; guests that need
/// some milliseconds to start stay below it.
const LONG: Duration = Duration::from_millis(8);

/// The permits. Guests get them in the order in which they wait.
pub struct Slices(Semaphore);

impl Slices {
    /// One permit for each thread.
    pub fn new(threads: usize) -> Self {
        Self(Semaphore::new(threads))
    }

    /// The guest, which waits for a permit before each slice but those that follow a short one. One that is urgent never waits.
    pub async fn share<T>(self: Arc<Self>, guest: impl Future<Output = T>, is_urgent: bool) -> T {
        let mut guest = pin!(guest);
        let mut computes_long = false;
        loop {
            // The semaphore is never closed.
            let permit = if computes_long { self.0.acquire().await.ok() } else { None };
            let slice = poll_fn(|context| {
                let begun = Instant::now();
                let polled = guest.as_mut().poll(context);
                computes_long = !is_urgent && begun.elapsed() >= LONG;
                Poll::Ready(polled)
            });
            if let Poll::Ready(output) = slice.await {
                return output;
            }
            if computes_long {
                // Others look for a permit meanwhile: on one thread, none would ever be missing if it ended with the poll. The guest is
                // polled again whether it was woken or not.
                yield_once().await;
                drop(permit);
            } else {
                drop(permit);
                woken().await;
            }
        }
    }
}

/// Ends when the task is woken. The guest has arranged for that.
async fn woken() {
    let mut is_first = true;
    poll_fn(|_| if std::mem::replace(&mut is_first, false) { Poll::Pending } else { Poll::Ready(()) }).await;
}

/// Lets the tasks that are ready be polled before this one is polled again, as a guest does at a tick.
async fn yield_once() {
    let mut is_first = true;
    poll_fn(|context| {
        if !std::mem::replace(&mut is_first, false) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Computes for `slice` and yields, again and again.
    async fn compute(slice: Duration, slices: usize) {
        for _ in 0..slices {
            let begun = Instant::now();
            while begun.elapsed() < slice {
                std::hint::spin_loop();
            }
            yield_once().await;
        }
    }

    /// As [`compute`], and counts the slices.
    async fn compute_counted(slices: Arc<AtomicU32>) {
        loop {
            slices.fetch_add(1, Ordering::Relaxed);
            compute(LONG, 1).await;
        }
    }

    #[tokio::test]
    async fn a_short_guest_passes_those_that_compute_for_long() {
        const LONG_GUESTS: u32 = 20;
        let slices = Arc::new(Slices::new(1));
        let computed = Arc::new(AtomicU32::new(0));
        let long = || tokio::spawn(slices.clone().share(compute_counted(computed.clone()), false));
        let long: Vec<_> = (0..LONG_GUESTS).map(|_| long()).collect();
        // Each has had its first slice: the runtime polls the tasks in turn.
        while computed.load(Ordering::Relaxed) < LONG_GUESTS * 2 {
            tokio::task::yield_now().await;
        }
        // A short one, and one that is urgent.
        for (slice, is_urgent) in [(Duration::ZERO, false), (LONG, true)] {
            let before = computed.load(Ordering::Relaxed);
            tokio::spawn(slices.clone().share(compute(slice, 10), is_urgent)).await.unwrap();
            let passed_by = computed.load(Ordering::Relaxed) - before;
            // Without permits each of its ten steps waits for all of them: two hundred slices. With permits each step waits for one, and
            // for all of them if the machine takes the thread away in the middle of a short step.
            assert!(passed_by < 120, "{passed_by} slices of others");
        }
        long.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn guests_that_compute_for_long_all_end() {
        let slices = Arc::new(Slices::new(1));
        let long: Vec<_> = (0..8).map(|_| tokio::spawn(slices.clone().share(compute(LONG, 5), false))).collect();
        for guest in long {
            guest.await.unwrap();
        }
        assert_eq!(slices.0.available_permits(), 1);
    }

    #[tokio::test]
    async fn a_guest_that_is_dropped_returns_its_permit() {
        let slices = Arc::new(Slices::new(1));
        let dropped = tokio::spawn(slices.clone().share(compute(LONG, 1_000), false));
        tokio::time::sleep(LONG * 8).await;
        dropped.abort();
        assert!(dropped.await.unwrap_err().is_cancelled());
        slices.clone().share(compute(LONG, 3), false).await;
        assert_eq!(slices.0.available_permits(), 1);
    }
}
