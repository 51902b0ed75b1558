//! Counters and histograms by labels.
//!
//! The vectors of the `prometheus` crate identify a series by a hash of its joined label values, so that two series can
//! merge (`a` + `bc` and `ab` + `c`). Here the label values themselves are the key.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::families::{Families, HistogramSample, number};

/// The counters of one family by the values of their labels.
#[derive(Debug)]
pub struct Counters<const N: usize> {
    name: &'static str,
    help: &'static str,
    labels: [&'static str; N],
    counts: Mutex<BTreeMap<[String; N], u64>>,
}

impl<const N: usize> Counters<N> {
    /// None yet.
    pub const fn new(name: &'static str, help: &'static str, labels: [&'static str; N]) -> Self {
        Self { name, help, labels, counts: Mutex::new(BTreeMap::new()) }
    }

    /// Counts one.
    pub fn count(&self, values: [&str; N]) {
        self.add(values, 1);
    }

    /// Counts a number at once.
    pub fn add(&self, values: [&str; N], number: u64) {
        *self.counts.lock().entry(values.map(str::to_owned)).or_default() += number;
    }

    /// Adds the family.
    pub fn add_to(&self, families: &mut Families) {
        let counts = self.counts.lock();
        let series = counts.iter().map(|(values, count)| (named(self.labels, values), number(*count)));
        families.counter(self.name, self.help, series);
    }
}

/// The histograms of one family by the values of their labels.
#[derive(Debug)]
pub struct Histograms<const N: usize> {
    name: &'static str,
    help: &'static str,
    labels: [&'static str; N],
    bounds: &'static [f64],
    samples: Mutex<BTreeMap<[String; N], HistogramSample>>,
}

impl<const N: usize> Histograms<N> {
    /// None yet; `bounds` are the upper bounds of the buckets, in rising order.
    pub const fn new(name: &'static str, help: &'static str, labels: [&'static str; N], bounds: &'static [f64]) -> Self {
        Self { name, help, labels, bounds, samples: Mutex::new(BTreeMap::new()) }
    }

    /// Counts one value.
    pub fn observe(&self, values: [&str; N], value: f64) {
        let mut samples = self.samples.lock();
        samples.entry(values.map(str::to_owned)).or_insert_with(|| HistogramSample::new(self.bounds)).observe(value);
    }

    /// Adds the family.
    pub fn add_to(&self, families: &mut Families) {
        let samples = self.samples.lock();
        let series = samples.iter().map(|(values, sample)| (named(self.labels, values), sample.clone()));
        families.histogram(self.name, self.help, series);
    }
}

fn named<const N: usize>(labels: [&'static str; N], values: &[String; N]) -> impl Iterator<Item = (&'static str, String)> {
    labels.into_iter().zip(values.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_with_equal_joined_labels_stay_apart() {
        let (counters, histograms) =
            (Counters::new("c_total", "Cs.", ["a", "b"]), Histograms::new("h_seconds", "Hs.", ["a", "b"], &[1.0, 2.0]));
        for values in [["p1", "1x"], ["p11", "x"], ["p11", "x"]] {
            counters.count(values);
            histograms.observe(values, 1.5);
        }
        counters.add(["p2", "x"], 7);
        let mut families = Families::default();
        counters.add_to(&mut families);
        histograms.add_to(&mut families);
        let text = families.text();
        for line in [
            "c_total{a=\"p1\",b=\"1x\"} 1",
            "c_total{a=\"p11\",b=\"x\"} 2",
            "c_total{a=\"p2\",b=\"x\"} 7",
            "h_seconds_bucket{a=\"p11\",b=\"x\",le=\"1\"} 0",
            "h_seconds_bucket{a=\"p11\",b=\"x\",le=\"2\"} 2",
            "h_seconds_sum{a=\"p11\",b=\"x\"} 3",
            "h_seconds_count{a=\"p1\",b=\"1x\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
    }
}
