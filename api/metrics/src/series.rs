//! Counters, gauges and histograms by labels.
//!
//! The vectors of the `prometheus` crate identify a series by a hash of its joined label values, so that two series can
//! merge (`a` + `bc` and `ab` + `c`). Here the label values themselves are the key.

use parking_lot::Mutex;

use crate::families::{Families, HistogramSample, number};

/// The counters of one family by the values of their labels.
#[derive(Debug)]
pub struct Counters<const N: usize> {
    name: &'static str,
    help: &'static str,
    labels: [&'static str; N],
    counts: Mutex<Series<N, u64>>,
}

impl<const N: usize> Counters<N> {
    /// None yet.
    pub const fn new(name: &'static str, help: &'static str, labels: [&'static str; N]) -> Self {
        Self { name, help, labels, counts: Mutex::new(Series::new()) }
    }

    /// Counts one.
    pub fn count(&self, values: [&str; N]) {
        self.add(values, 1);
    }

    /// Counts a number at once.
    pub fn add(&self, values: [&str; N], number: u64) {
        self.counts.lock().change(values, u64::default, |count| *count += number);
    }

    /// Adds the family.
    pub fn add_to(&self, families: &mut Families) {
        let counts = self.counts.lock();
        families.counter(self.name, self.help, counts.named(self.labels).map(|(labels, count)| (labels, number(*count))));
    }
}

/// The numbers of things that there are now, in one family by the values of their labels.
#[derive(Debug)]
pub struct Gauges<const N: usize> {
    name: &'static str,
    help: &'static str,
    labels: [&'static str; N],
    numbers: Mutex<Series<N, u64>>,
}

impl<const N: usize> Gauges<N> {
    /// None yet.
    pub const fn new(name: &'static str, help: &'static str, labels: [&'static str; N]) -> Self {
        Self { name, help, labels, numbers: Mutex::new(Series::new()) }
    }

    /// Sets the number.
    pub fn set(&self, values: [&str; N], number: u64) {
        self.numbers.lock().change(values, u64::default, |before| *before = number);
    }

    /// There is one more.
    pub fn increment(&self, values: [&str; N]) {
        self.numbers.lock().change(values, u64::default, |number| *number += 1);
    }

    /// There is one less.
    pub fn decrement(&self, values: [&str; N]) {
        self.numbers.lock().change(values, u64::default, |number| *number = number.saturating_sub(1));
    }

    /// Adds the family. A series stays when its number is 0 again.
    pub fn add_to(&self, families: &mut Families) {
        let numbers = self.numbers.lock();
        families.gauge(self.name, self.help, numbers.named(self.labels).map(|(labels, value)| (labels, number(*value))));
    }
}

/// The histograms of one family by the values of their labels.
#[derive(Debug)]
pub struct Histograms<const N: usize> {
    name: &'static str,
    help: &'static str,
    labels: [&'static str; N],
    bounds: &'static [f64],
    samples: Mutex<Series<N, HistogramSample>>,
}

impl<const N: usize> Histograms<N> {
    /// None yet; `bounds` are the upper bounds of the buckets, in rising order.
    pub const fn new(name: &'static str, help: &'static str, labels: [&'static str; N], bounds: &'static [f64]) -> Self {
        Self { name, help, labels, bounds, samples: Mutex::new(Series::new()) }
    }

    /// Counts one value.
    pub fn observe(&self, values: [&str; N], value: f64) {
        self.samples.lock().change(values, || HistogramSample::new(self.bounds), |sample| sample.observe(value));
    }

    /// Adds the family.
    pub fn add_to(&self, families: &mut Families) {
        let samples = self.samples.lock();
        families.histogram(self.name, self.help, samples.named(self.labels).map(|(labels, sample)| (labels, sample.clone())));
    }
}

/// The series of a family in the order of their label values. A value that has a series is counted without an allocation.
#[derive(Debug)]
struct Series<const N: usize, V>(Vec<([String; N], V)>);

impl<const N: usize, V> Series<N, V> {
    const fn new() -> Self {
        Self(Vec::new())
    }

    /// Changes the value of a series, which is `new` at first.
    fn change(&mut self, values: [&str; N], new: impl FnOnce() -> V, change: impl FnOnce(&mut V)) {
        let index = self.0.binary_search_by(|(of, _)| of.iter().map(String::as_str).cmp(values)).unwrap_or_else(|index| {
            self.0.insert(index, (values.map(str::to_owned), new()));
            index
        });
        if let Some((_, value)) = self.0.get_mut(index) {
            change(value);
        }
    }

    /// The series with the names and the values of their labels.
    fn named(&self, labels: [&'static str; N]) -> impl Iterator<Item = (impl Iterator<Item = (&'static str, String)>, &V)> {
        self.0.iter().map(move |(values, value)| (labels.into_iter().zip(values.clone()), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_that_of_its_label_values_alone() {
        let (counters, gauges) = (Counters::new("c_total", "Cs.", ["of", "by"]), Gauges::new("g", "Gs.", ["of"]));
        for values in [["b", "c"], ["a", "bc"], ["ab", "c"], ["a", "bc"]] {
            counters.count(values);
        }
        gauges.set(["z"], 7);
        ["y", "y", "x"].into_iter().for_each(|of| gauges.increment([of]));
        ["y", "x", "x"].into_iter().for_each(|of| gauges.decrement([of]));
        let mut families = Families::default();
        counters.add_to(&mut families);
        gauges.add_to(&mut families);
        assert_eq!(
            families.text(),
            "# HELP c_total Cs.\n# TYPE c_total counter\nc_total{by=\"bc\",of=\"a\"} 2\nc_total{by=\"c\",of=\"ab\"} 1\n\
             c_total{by=\"c\",of=\"b\"} 1\n# HELP g Gs.\n# TYPE g gauge\ng{of=\"x\"} 0\ng{of=\"y\"} 1\ng{of=\"z\"} 7\n"
        );
    }
}
