//! How many Pods an extender is called for at the same time. A Pod is with one extender after the other, so that an extender that hangs
//! keeps the Pods waiting that it is called for, and leaves the calls of the other extenders alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The number of Pods with an extender from which on no further ones begin that call it. Pods that come from an extender before it are
/// not stopped: each of the extenders before it adds at most as many.
pub(crate) const VISITS_MAX: usize = 32;

/// The Pods with one extender.
pub(super) struct Visits {
    count: AtomicUsize,
    /// One for all extenders.
    ended: Arc<Notify>,
}

impl Visits {
    /// Without Pods. The end of each visit is notified.
    pub fn new(ended: &Arc<Notify>) -> Arc<Self> {
        Arc::new(Self { count: AtomicUsize::new(0), ended: Arc::clone(ended) })
    }

    /// Whether another Pod may begin.
    pub fn has_room(&self) -> bool {
        self.count.load(Ordering::Relaxed) < VISITS_MAX
    }
}

/// A Pod is with an extender until the visit is dropped.
pub(crate) struct Visit(Arc<Visits>);

impl Visit {
    /// A Pod comes to the extender.
    pub(super) fn begin(visits: &Arc<Visits>) -> Self {
        visits.count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(visits))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
        self.0.ended.notify_one();
    }
}
