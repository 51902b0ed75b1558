//! The metrics of work queues, under the names of client-go's queues: `workqueue_*`, by the name of the queue.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use api_metrics::{Counters, Families, Histograms, number};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Upper bounds in seconds, upstream's.
const BOUNDS: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0];

static ADDS: Counters<1> = Counters::new("workqueue_adds_total", "Keys that were added to the queue.", ["name"]);
static RETRIES: Counters<1> = Counters::new("workqueue_retries_total", "Keys that were added to the queue for a later time.", ["name"]);
static WAITED: Histograms<1> =
    Histograms::new("workqueue_queue_duration_seconds", "How long a key was in the queue before its pass began.", ["name"], BOUNDS);
static WORKED: Histograms<1> = Histograms::new("workqueue_work_duration_seconds", "How long a pass over a key took.", ["name"], BOUNDS);

/// The queues of the process. Those that ended are removed when another one is made.
static METERS: Mutex<Vec<Weak<Meter>>> = Mutex::new(Vec::new());

/// The figures of one queue.
#[derive(Debug)]
pub(super) struct Meter {
    name: &'static str,
    marks: Mutex<Marks>,
}

#[derive(Debug, Default)]
struct Marks {
    /// Keys that wait for a pass.
    depth: u64,
    /// The beginnings of the passes that run.
    running: Vec<Instant>,
}

impl Meter {
    /// A meter that is shown under this name for as long as it lives.
    pub(super) fn new(name: &'static str) -> Arc<Self> {
        api_metrics::publish(add_to);
        let meter = Arc::new(Self { name, marks: Mutex::default() });
        let mut meters = METERS.lock();
        meters.retain(|meter| meter.strong_count() > 0);
        meters.push(Arc::downgrade(&meter));
        meter
    }

    /// A key was added that was not waiting already.
    pub(super) fn added(&self) {
        ADDS.count([self.name]);
        self.marks.lock().depth += 1;
    }

    /// A key was added for a later time.
    pub(super) fn delayed(&self) {
        RETRIES.count([self.name]);
    }

    /// A pass over a key begins that was added at `added`.
    pub(super) fn began(&self, added: Instant, now: Instant) {
        WAITED.observe([self.name], now.duration_since(added).as_secs_f64());
        let mut marks = self.marks.lock();
        marks.depth = marks.depth.saturating_sub(1);
        marks.running.push(now);
    }

    /// The pass that began at `began` is over.
    pub(super) fn ended(&self, began: Instant, now: Instant) {
        WORKED.observe([self.name], now.duration_since(began).as_secs_f64());
        let mut marks = self.marks.lock();
        if let Some(at) = marks.running.iter().position(|start| *start == began) {
            marks.running.swap_remove(at);
        }
    }
}

/// The figures of all queues of one name at one time.
#[derive(Debug, Default, PartialEq)]
struct Level {
    depth: u64,
    unfinished: f64,
    longest: f64,
}

fn levels(now: Instant) -> BTreeMap<&'static str, Level> {
    let mut levels: BTreeMap<&'static str, Level> = BTreeMap::new();
    for meter in METERS.lock().iter().filter_map(Weak::upgrade) {
        let level = levels.entry(meter.name).or_default();
        let marks = meter.marks.lock();
        level.depth += marks.depth;
        for seconds in marks.running.iter().map(|start| now.duration_since(*start).as_secs_f64()) {
            level.unfinished += seconds;
            level.longest = level.longest.max(seconds);
        }
    }
    levels
}

fn add_to(families: &mut Families) {
    ADDS.add_to(families);
    let levels = levels(Instant::now());
    let series = |value: fn(&Level) -> f64| levels.iter().map(move |(name, level)| ([("name", (*name).to_owned())], value(level)));
    families.gauge("workqueue_depth", "Keys that wait for a pass.", series(|level| number(level.depth)));
    families.gauge(
        "workqueue_longest_running_processor_seconds",
        "For how long the longest of the running passes has run.",
        series(|level| level.longest),
    );
    WAITED.add_to(families);
    RETRIES.add_to(families);
    families.gauge(
        "workqueue_unfinished_work_seconds",
        "For how long all running passes together have run.",
        series(|level| level.unfinished),
    );
    WORKED.add_to(families);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::work::WorkQueue;

    fn text() -> String {
        let mut families = Families::default();
        add_to(&mut families);
        families.text()
    }

    #[track_caller]
    fn assert_line(line: &str) {
        let text = text();
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_shows_what_waits_and_what_runs() {
        let queue = WorkQueue::new("metered");
        for key in ["a", "b", "a"] {
            queue.add(key);
        }
        assert_line("workqueue_adds_total{name=\"metered\"} 2");
        assert_line("workqueue_depth{name=\"metered\"} 2");
        tokio::time::advance(Duration::from_secs(2)).await;
        let key = queue.next().await;
        assert_line("workqueue_depth{name=\"metered\"} 1");
        assert_line("workqueue_queue_duration_seconds_sum{name=\"metered\"} 2");
        tokio::time::advance(Duration::from_secs(3)).await;
        let other = queue.next().await;
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_line("workqueue_unfinished_work_seconds{name=\"metered\"} 5");
        assert_line("workqueue_longest_running_processor_seconds{name=\"metered\"} 4");
        queue.add(key);
        assert_line("workqueue_depth{name=\"metered\"} 1");
        queue.done(&key);
        queue.done(&other);
        assert_line("workqueue_work_duration_seconds_count{name=\"metered\"} 2");
        assert_line("workqueue_work_duration_seconds_sum{name=\"metered\"} 5");
        assert_line("workqueue_unfinished_work_seconds{name=\"metered\"} 0");
        queue.add_after("c", Duration::from_secs(1));
        queue.add_rate_limited("d", Duration::MAX);
        assert_line("workqueue_retries_total{name=\"metered\"} 2");
        drop(queue);
        assert!(!text().contains("workqueue_depth{name=\"metered\"}"), "the queue is gone");
    }
}
