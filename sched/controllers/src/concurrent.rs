//! Futures at the same time, within bounds.

use std::future::Future;

use futures::StreamExt;
use futures::stream;
use tokio::time::{Instant, timeout_at};

/// Awaits futures, at most `most` at the same time. Returns their outputs in their order; None for those without one at the
/// deadline.
pub async fn all<F: Future>(futures: impl IntoIterator<Item = F>, most: usize, deadline: Instant) -> Vec<Option<F::Output>> {
    let indexed = |(index, future)| async move { (index, timeout_at(deadline, future).await.ok()) };
    let futures: Vec<_> = futures.into_iter().enumerate().map(indexed).collect();
    let mut outputs: Vec<(usize, Option<F::Output>)> = stream::iter(futures).buffer_unordered(most).collect().await;
    outputs.sort_unstable_by_key(|(index, _)| *index);
    outputs.into_iter().map(|(_, output)| output).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn some_run_at_once_and_all_end_at_the_deadline() {
        let (running, peak) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
        let work = |(number, seconds)| async move {
            peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_secs(seconds)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            number
        };
        let start = Instant::now();
        // The first one hangs, and the others go on beside it.
        let outputs = all([(0, 100), (1, 4), (2, 1), (3, 3), (4, 4)].map(work), 2, start + Duration::from_secs(10)).await;
        assert_eq!(outputs, [None, Some(1), Some(2), Some(3), None]);
        assert_eq!((peak.load(Ordering::SeqCst), start.elapsed()), (2, Duration::from_secs(10)));
    }
}
