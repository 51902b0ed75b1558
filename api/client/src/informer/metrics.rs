//! What an informer says of itself at `/metrics`.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Once, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use super::cache::SharedCache;

/// The informers of the process. Those that ended are removed at the next registration.
static INFORMERS: Mutex<Vec<Weak<Stats>>> = Mutex::new(Vec::new());

/// Figures of one informer.
pub(super) struct Stats {
    pub(super) kind: String,
    /// Tells informers of one kind apart.
    number: u64,
    objects: AtomicUsize,
    lists: AtomicU64,
    /// Since when the watch is interrupted.
    interrupted: Mutex<Option<Instant>>,
}

impl Stats {
    pub(super) fn new(kind: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { kind: kind.to_owned(), number, objects: AtomicUsize::new(0), lists: AtomicU64::new(0), interrupted: Mutex::new(None) }
    }

    pub(super) fn set_objects(&self, objects: usize) {
        self.objects.store(objects, Ordering::Relaxed);
    }

    pub(super) fn listed(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn connected(&self, is_connected: bool) {
        let mut interrupted = self.interrupted.lock();
        if is_connected {
            *interrupted = None;
        } else {
            interrupted.get_or_insert_with(Instant::now);
        }
    }

    fn lag_seconds(&self) -> f64 {
        self.interrupted.lock().map_or(0.0, |since| since.elapsed().as_secs_f64())
    }
}

/// Adds an informer to the metrics of the process until it ends.
pub(super) fn register<K>(cache: &SharedCache<K>) {
    static PUBLISHED: Once = Once::new();
    PUBLISHED.call_once(|| api_tasks::publish_metrics(metrics));
    let mut informers = INFORMERS.lock();
    informers.retain(|stats| stats.strong_count() > 0);
    informers.push(Arc::downgrade(&cache.stats));
}

/// The informers' figures in Prometheus' text format: objects held, lists made, and for how long the cache has had no
/// watch.
pub fn metrics() -> String {
    type Value = fn(&Stats) -> f64;
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let families: [(&str, &str, &str, Value); 3] = [
        ("skiff_informer_objects", "gauge", "Objects in the cache of an informer.", |stats| stats.objects.load(Ordering::Relaxed) as f64),
        ("skiff_informer_lists_total", "counter", "Complete lists that an informer asked for.", |stats| {
            stats.lists.load(Ordering::Relaxed) as f64
        }),
        (
            "skiff_informer_lag_seconds",
            "gauge",
            "Time since the watch of an informer was interrupted; 0 while it runs.",
            Stats::lag_seconds,
        ),
    ];
    let informers: Vec<Arc<Stats>> = INFORMERS.lock().iter().filter_map(Weak::upgrade).collect();
    let mut text = String::new();
    for (name, metric_type, help, value) in families {
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {metric_type}\n"));
        for stats in &informers {
            text.push_str(&format!("{name}{{kind=\"{}\",informer=\"{}\"}} {}\n", stats.kind, stats.number, value(stats)));
        }
    }
    text
}
