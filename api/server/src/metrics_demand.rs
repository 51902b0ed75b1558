//! When the use of nodes and Pods is read. As long as clients ask for metrics, the time between two passes over the nodes is the
//! resolution. Without requests the passes are rarer: a pass costs each node time for each of its containers, and one older reading is
//! enough for an average. A request after such a rest begins a pass and waits for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

/// For so many resolutions after a request, further ones are expected: autoscalers ask each 15 s, dashboards each minute.
const EXPECTED_RESOLUTIONS: u32 = 8;
/// The resolutions from one pass to the next when no request is expected.
const REST_RESOLUTIONS: u32 = 4;
/// A request waits when the last pass began more resolutions ago. During a rest one is enough; else a pass may be under way.
const OLD_RESOLUTIONS: u32 = 2;
/// The longest wait of a request.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// The requests for metrics, and the passes over the nodes.
pub(crate) struct MetricsDemand {
    /// The time between two passes; zero: nothing is read.
    resolution: Duration,
    /// The last request. The start of the server counts as one.
    requested: watch::Sender<Instant>,
    /// The start of the last pass that has ended.
    passed: watch::Sender<Option<Instant>>,
    /// Whether the last pass was followed by a rest, until the next one has ended.
    rests: AtomicBool,
}

impl MetricsDemand {
    pub(crate) fn new(resolution: Duration) -> Self {
        Self { resolution, requested: watch::Sender::new(Instant::now()), passed: watch::Sender::default(), rests: AtomicBool::default() }
    }

    /// Notes a request. Returns when the readings are not old, or after [`WAIT_MAX`].
    pub(crate) async fn ask(&self) {
        let now = Instant::now();
        self.requested.send_replace(now);
        let old = if self.rests.load(Ordering::Relaxed) { 1 } else { OLD_RESOLUTIONS };
        let is_recent = |pass: &Option<Instant>| pass.is_none_or(|pass| now.saturating_duration_since(pass) <= self.resolution * old);
        let mut passes = self.passed.subscribe();
        if !self.resolution.is_zero() && timeout(WAIT_MAX, passes.wait_for(is_recent)).await.is_err() {
            tracing::debug!("metrics are answered from old readings");
        }
    }

    /// Notes the end of a pass that began at that time.
    pub(crate) fn passed(&self, began: Instant) {
        self.rests.store(false, Ordering::Relaxed);
        self.passed.send_replace(Some(began));
    }

    /// Waits until the pass after the one that began at that time is due. While the nodes are not settled, no pass is left out.
    pub(crate) async fn due(&self, began: Instant, mut are_settled: impl FnMut() -> bool) {
        sleep_until(began + self.resolution).await;
        for resolutions in 2..=REST_RESOLUTIONS {
            if !are_settled() || !self.rest(began + self.resolution * resolutions).await {
                break;
            }
        }
    }

    /// Waits until that time. Returns `false`, at once or earlier, when requests are expected.
    async fn rest(&self, until: Instant) -> bool {
        let mut requests = self.requested.subscribe();
        let requested = *requests.borrow_and_update();
        if self.is_expected(requested, Instant::now()) {
            return false;
        }
        self.rests.store(true, Ordering::Relaxed);
        tokio::select! {
            () = sleep_until(until) => true,
            _ = requests.changed() => false,
        }
    }

    /// Whether the next request is expected soon after the last one.
    fn is_expected(&self, requested: Instant, at: Instant) -> bool {
        at.saturating_duration_since(requested) <= self.resolution * EXPECTED_RESOLUTIONS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESOLUTION: Duration = Duration::from_secs(15);
    /// The time of a pass.
    const PASS: Duration = Duration::from_secs(1);

    /// Runs passes for that many seconds; returns the seconds at which they began. A node joins after the pass of that number.
    async fn passes(demand: &MetricsDemand, seconds: u64, joins: usize) -> Vec<u64> {
        let (began, mut all) = (Instant::now(), Vec::new());
        let rounds = async {
            loop {
                let pass = Instant::now();
                all.push((pass - began).as_secs());
                tokio::time::sleep(PASS).await;
                demand.passed(pass);
                let is_settled = all.len() != joins;
                demand.due(pass, || is_settled).await;
            }
        };
        let _over = timeout(Duration::from_secs(seconds), rounds).await;
        all
    }

    /// Sends requests at these seconds; returns the milliseconds that each waited.
    async fn requests(demand: &MetricsDemand, at: &[u64]) -> Vec<u128> {
        let began = Instant::now();
        let request = |second: &u64| {
            let at = began + Duration::from_secs(*second);
            async move {
                sleep_until(at).await;
                demand.ask().await;
                at.elapsed().as_millis()
            }
        };
        futures::future::join_all(at.iter().map(request)).await
    }

    #[tokio::test(start_paused = true)]
    async fn without_requests_the_nodes_are_read_more_rarely() {
        let demand = MetricsDemand::new(RESOLUTION);
        assert_eq!(passes(&demand, 350, 11).await, [0, 15, 30, 45, 60, 75, 90, 105, 120, 180, 240, 255, 315]);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_after_a_rest_begin_a_pass_and_wait_for_it() {
        let demand = MetricsDemand::new(RESOLUTION);
        let (passes, waited) = tokio::join!(passes(&demand, 270, 0), requests(&demand, &[235, 235, 236, 240]));
        assert_eq!(passes[8..], [120, 180, 235, 250, 265]);
        assert_eq!(waited, [1_000, 1_000, 0, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_does_not_wait_for_long() {
        let demand = MetricsDemand::new(RESOLUTION);
        let at = |seconds: u64| demand.passed(Instant::now() - Duration::from_secs(seconds));
        assert_eq!(requests(&demand, &[0]).await, [0], "before the first pass");
        at(30);
        assert_eq!(requests(&demand, &[0]).await, [0], "a pass may be under way");
        at(31);
        assert_eq!(requests(&demand, &[0]).await, [WAIT_MAX.as_millis()]);
        let off = MetricsDemand::new(Duration::ZERO);
        assert_eq!(requests(&off, &[0]).await, [0], "nobody reads the nodes");
    }

    #[tokio::test(start_paused = true)]
    async fn regular_requests_keep_the_resolution() {
        let demand = MetricsDemand::new(RESOLUTION);
        let (passes, waited) = tokio::join!(passes(&demand, 500, 0), requests(&demand, &[100, 200, 300, 400, 500]));
        assert!(passes.windows(2).all(|pair| pair[1] - pair[0] == 15), "{passes:?}");
        assert_eq!(waited, [0; 5]);
    }
}
