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

/// The published parts.
static SOURCES: Mutex<Vec<Source>> = Mutex::new(Vec::new());

/// Adds a part to what [`add_process`] adds, for the rest of the process. A second call with the same function changes
/// nothing.
pub fn publish(source: Source) {
    let mut sources = SOURCES.lock();
    if !sources.iter().any(|published| std::ptr::fn_addr_eq(*published, source)) {
        sources.push(source);
    }
}

/// Adds the metrics of the whole process: its CPU time and memory, and the published parts.
pub fn add_process(families: &mut Families) {
    process::add(families);
    let sources = SOURCES.lock().clone();
    sources.into_iter().for_each(|source| source(families));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_published_parts_and_the_process_are_families() {
        let counters = counters("c_total", "Cs.", &["of"]).unwrap();
        counters.with_label_values(&["x"]).inc();
        let mut families = Families::default();
        families.collect(&counters);
        publish(|families| families.gauge("part", "A part.", [([], 2.0)]));
        add_process(&mut families);
        let text = families.text();
        assert!(text.starts_with("# HELP c_total Cs.\n# TYPE c_total counter\nc_total{of=\"x\"} 1\n"), "{text}");
        assert!(text.ends_with("# HELP part A part.\n# TYPE part gauge\npart 2\n"), "{text}");
        let resident = text.lines().find_map(|line| line.strip_prefix("process_resident_memory_bytes ")?.parse().ok());
        assert!(resident.is_some_and(|bytes: f64| bytes > 100_000.0), "{text}");
    }
}
