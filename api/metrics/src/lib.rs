//! Metrics of a process for Prometheus, in its text format 0.0.4, which upstream's components answer at `/metrics`.
//!
//! A part with counters of its own uses the vectors of `prometheus` ([`counters`], [`histograms`]) and adds them by
//! [`Families::collect`]. A part that reads values at the time of a request adds them by [`Families::counter`] and its
//! neighbours. [`publish`] is for parts whose values belong to the whole process.

mod families;
mod process;

use parking_lot::Mutex;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts};

pub use families::{Families, HistogramSample, TEXT_FORMAT, number};
pub use prometheus;

/// Adds the metrics of one part.
pub type Source = fn(&mut Families);

/// The published parts of the process.
static SOURCES: Mutex<Vec<Source>> = Mutex::new(Vec::new());

/// Adds a part to what [`Families::published`] adds, for the rest of the process. A second call with the same function
/// changes nothing.
pub fn publish(source: Source) {
    let mut sources = SOURCES.lock();
    if !sources.iter().any(|published| std::ptr::fn_addr_eq(*published, source)) {
        sources.push(source);
    }
}

/// Counters by labels.
///
/// # Errors
///
/// A name is not valid in Prometheus.
pub fn counters(name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
    IntCounterVec::new(Opts::new(name, help), labels)
}

/// Histograms by labels, with these upper bounds of their buckets.
///
/// # Errors
///
/// A name is not valid in Prometheus, or the bounds do not rise.
pub fn histograms(name: &str, help: &str, labels: &[&str], bounds: &[f64]) -> prometheus::Result<HistogramVec> {
    HistogramVec::new(HistogramOpts::new(name, help).buckets(bounds.to_vec()), labels)
}
