//! The metrics of informers at `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use api_metrics::{Families, number};
use parking_lot::Mutex;

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

/// Adds an informer or a reflector to the metrics of the process until it ends.
pub(super) fn register(stats: &Arc<Stats>) {
    api_metrics::publish(metrics);
    let mut informers = INFORMERS.lock();
    informers.retain(|stats| stats.strong_count() > 0);
    informers.push(Arc::downgrade(stats));
}

/// Adds the figures of the informers: objects in the cache, lists made, interruptions of the watch.
fn metrics(families: &mut Families) {
    let informers: Vec<Arc<Stats>> = INFORMERS.lock().iter().filter_map(Weak::upgrade).collect();
    let series = |value: fn(&Stats) -> &AtomicU64| {
        informers.iter().map(move |stats| {
            let labels = [("kind", stats.kind.clone()), ("informer", stats.number.to_string())];
            (labels, number(value(stats).load(Ordering::Relaxed)))
        })
    };
    families.gauge("skiff_informer_objects", "Objects in the cache of an informer.", series(|stats| &stats.objects));
    families.counter("skiff_informer_lists_total", "Complete lists that an informer asked for.", series(|stats| &stats.lists));
    families.counter(
        "skiff_informer_interruptions_total",
        "Errors of an informer's watch, after each of which it watched again.",
        series(|stats| &stats.interruptions),
    );
}
