//! Shares the threads between guests that compute for long and all other work. A guest that computes yields at each tick, and would
//! then be one of all that wait for the thread: sixty of them would make each step of a short request wait for sixty ticks. So a guest
//! that has used up a slice of time needs a permit for its next one, and there are as many permits as threads. Short requests and
//! connections need none: on their thread they wait for one slice at most. Nor do probes, whatever they cost.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

/// A guest that computed so long without a pause computes for long. It is less than a tick, so that a whole slice counts; guests that need
/// some milliseconds to start stay below it.
const LONG: Duration = Duration::from_millis(8);
/// After a guest that computed so long, other tasks run before its own goes on to the next request.
const PAUSE_AFTER: Duration = Duration::from_millis(1);

/// The permits. Guests get them in the order in which they wait.
pub struct Slices(Semaphore);

impl Slices {
    /// One permit for each thread.
    pub fn new(threads: usize) -> Self {
        Self(Semaphore::new(threads))
    }
}

/// A guest that computes in slices.
pub struct SlicedGuest<F> {
    guest: Pin<Box<F>>,
    is_urgent: bool,
    /// What its last slice took.
    slice: Duration,
}

impl<F: Future> SlicedGuest<F> {
    /// A guest that has not begun. One that is urgent never waits for a permit.
    pub fn new(guest: Pin<Box<F>>, is_urgent: bool) -> Self {
        Self { guest, is_urgent, slice: Duration::ZERO }
    }

    fn computes_long(&self) -> bool {
        !self.is_urgent && self.slice >= LONG
    }

    /// Lets other tasks run if its last slice was long: the task of that slice may have the next request already.
    pub async fn pause(&mut self) {
        if !self.is_urgent && self.slice >= PAUSE_AFTER {
            yield_once().await;
        }
    }

    /// Its next slice. When it is the first one, it needs no permit.
    pub async fn slice(&mut self) -> Poll<F::Output> {
        poll_fn(|context| {
            let begun = Instant::now();
            let polled = self.guest.as_mut().poll(context);
            self.slice = begun.elapsed();
            Poll::Ready(polled)
        })
        .await
    }

    /// Its further slices until it ends. It waits for a permit before each slice but those that follow a short one.
    pub async fn run(mut self, slices: Arc<Slices>) -> F::Output {
        loop {
            // The semaphore is never closed.
            let permit = if self.computes_long() { slices.0.acquire().await.ok() } else { None };
            if let Poll::Ready(output) = self.slice().await {
                return output;
            }
            if self.computes_long() {
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

    fn share<F: Future>(slices: &Arc<Slices>, guest: F, is_urgent: bool) -> impl Future<Output = F::Output> + use<F> {
        SlicedGuest::new(Box::pin(guest), is_urgent).run(slices.clone())
    }

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
        let long = || tokio::spawn(share(&slices, compute_counted(computed.clone()), false));
        let long: Vec<_> = (0..LONG_GUESTS).map(|_| long()).collect();
        // Each has had its first slice: the runtime polls the tasks in turn.
        while computed.load(Ordering::Relaxed) < LONG_GUESTS * 2 {
            tokio::task::yield_now().await;
        }
        // A short one, and one that is urgent.
        for (slice, is_urgent) in [(Duration::ZERO, false), (LONG, true)] {
            let before = computed.load(Ordering::Relaxed);
            tokio::spawn(share(&slices, compute(slice, 10), is_urgent)).await.unwrap();
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
        let long: Vec<_> = (0..8).map(|_| tokio::spawn(share(&slices, compute(LONG, 5), false))).collect();
        for guest in long {
            guest.await.unwrap();
        }
        assert_eq!(slices.0.available_permits(), 1);
    }

    #[tokio::test]
    async fn a_guest_that_is_dropped_returns_its_permit() {
        let slices = Arc::new(Slices::new(1));
        let dropped = tokio::spawn(share(&slices, compute(LONG, 1_000), false));
        tokio::time::sleep(LONG * 8).await;
        dropped.abort();
        assert!(dropped.await.unwrap_err().is_cancelled());
        share(&slices, compute(LONG, 3), false).await;
        assert_eq!(slices.0.available_permits(), 1);
    }
}
