//! Metrics of a process for Prometheus, in its text format 0.0.4, which upstream's components answer at `/metrics`.
//!
//! A part that counts has [`Counters`], [`Gauges`] and [`Histograms`]. A part that reads values at the time of a request adds them by
//! [`Families::counter`] and its neighbours. [`publish`] is for parts whose values belong to the whole process. The text is
//! written by the `prometheus` crate.

mod families;
mod process;
mod series;

use parking_lot::Mutex;

pub use families::{Families, HistogramSample, TEXT_FORMAT, number};
pub use series::{Counters, Gauges, Histograms};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_published_parts_and_the_process_are_families() {
        let counters = Counters::new("c_total", "Cs.", ["of"]);
        counters.count(["x"]);
        let mut families = Families::default();
        counters.add_to(&mut families);
        publish(|families| families.gauge("part", "A part.", [([], 2.0)]));
        add_process(&mut families);
        let text = families.text();
        assert!(text.starts_with("# HELP c_total Cs.\n# TYPE c_total counter\nc_total{of=\"x\"} 1\n"), "{text}");
        assert!(text.ends_with("# HELP part A part.\n# TYPE part gauge\npart 2\n"), "{text}");
        let resident = text.lines().find_map(|line| line.strip_prefix("process_resident_memory_bytes ")?.parse().ok());
        assert!(resident.is_some_and(|bytes: f64| bytes > 100_000.0), "{text}");
    }
}
