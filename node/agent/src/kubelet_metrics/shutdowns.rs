//! When the node last shut down.

use api_metrics::{Families, number};
use jiff::Timestamp;
use parking_lot::Mutex;

/// The times of the last graceful shutdown.
#[derive(Default)]
pub(crate) struct ShutdownMetrics(Mutex<(Option<Timestamp>, Option<Timestamp>)>);

impl ShutdownMetrics {
    /// Sets the times.
    pub(crate) fn set(&self, start: Option<Timestamp>, end: Option<Timestamp>) {
        *self.0.lock() = (start, end);
    }

    pub(super) fn add_to(&self, families: &mut Families) {
        let (start, end) = *self.0.lock();
        for (name, help, at) in [
            ("kubelet_graceful_shutdown_start_time_seconds", "Time at which the last graceful shutdown began, in Unix seconds.", start),
            ("kubelet_graceful_shutdown_end_time_seconds", "Time at which the last graceful shutdown ended, in Unix seconds.", end),
        ] {
            // Before the first shutdown, and during one, a time is 0.
            let seconds = at.and_then(|at| u64::try_from(at.as_second()).ok()).unwrap_or(0);
            families.gauge(name, help, [([], number(seconds))]);
        }
    }
}
