//! The metrics of informers at `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once, Weak};

use parking_lot::Mutex;

use super::cache::SharedCache;

/// The informers of the process. Those that ended are removed at the next registration.
static INFORMERS: Mutex<Vec<Weak<Stats>>> = Mutex::new(Vec::new());

/// Figures of one informer.
pub(super) struct Stats {
    pub(super) kind: String,
    /// Distinguishes informers of one kind.
    number: u64,
    objects: AtomicU64,
    lists: AtomicU64,
    interruptions: AtomicU64,
}

impl Stats {
    pub(super) fn new(kind: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let [objects, lists, interruptions] = [(); 3].map(|()| AtomicU64::new(0));
        Self { kind: kind.to_owned(), number, objects, lists, interruptions }
    }

    pub(super) fn set_objects(&self, objects: usize) {
        self.objects.store(objects as u64, Ordering::Relaxed);
    }

    pub(super) fn listed(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn interrupted(&self) {
        self.interruptions.fetch_add(1, Ordering::Relaxed);
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

/// The informers' figures in Prometheus' text format: objects in the cache, lists made, interruptions of the watch.
pub fn metrics() -> String {
    type Value = fn(&Stats) -> &AtomicU64;
    let families: [(&str, &str, &str, Value); 3] = [
        ("skiff_informer_objects", "gauge", "Objects in the cache of an informer.", |stats| &stats.objects),
        ("skiff_informer_lists_total", "counter", "Complete lists that an informer asked for.", |stats| &stats.lists),
        (
            "skiff_informer_interruptions_total",
            "counter",
            "Errors of an informer's watch, after each of which it watched again.",
            |stats| &stats.interruptions,
        ),
    ];
    let informers: Vec<Arc<Stats>> = INFORMERS.lock().iter().filter_map(Weak::upgrade).collect();
    let mut text = String::new();
    for (name, metric_type, help, value) in families {
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {metric_type}\n"));
        for stats in &informers {
            let (kind, number, value) = (&stats.kind, stats.number, value(stats).load(Ordering::Relaxed));
            text.push_str(&format!("{name}{{kind=\"{kind}\",informer=\"{number}\"}} {value}\n"));
        }
    }
    text
}
