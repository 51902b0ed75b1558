//! Counters, gauges and histograms by labels.
//!
//! The vectors of the `prometheus` crate identify a series by a hash of its joined label values, so that two series can
//! merge (`a` + `bc` and `ab` + `c`). Here the label values themselves are the key.

use std::array;
use std::iter::Zip;

use parking_lot::Mutex;

use crate::families::{Families, HistogramSample, number};

/// The counters of one family by the values of their labels.
#[derive(Debug)]
pub struct Counters<const N: usize>(Family<N, u64>);

impl<const N: usize> Counters<N> {
    /// None yet.
    pub const fn new(name: &'static str, help: &'static str, labels: [&'static str; N]) -> Self {
        Self(Family::new(name, help, labels))
    }

    /// Counts one.
    pub fn count(&self, values: [&str; N]) {
        self.add(values, 1);
    }

    /// Counts a number at once.
    pub fn add(&self, values: [&str; N], number: u64) {
        self.0.change(values, u64::default, |count| *count += number);
    }

    /// Adds the family.
    pub fn add_to(&self, families: &mut Families) {
        families.counter(self.0.name, self.0.help, self.0.series(|count| number(*count)));
    }
}

/// The numbers of things that there are now, in one family by the values of their labels.
#[derive(Debug)]
pub struct Gauges<const N: usize>(Family<N, u64>);

impl<const N: usize> Gauges<N> {
    /// None yet.
    pub const fn new(name: &'static str, help: &'static str, labels: [&'static str; N]) -> Self {
        Self(Family::new(name, help, labels))
    }

    /// Sets the number.
    pub fn set(&self, values: [&str; N], number: u64) {
        self.0.change(values, u64::default, |before| *before = number);
    }

    /// There is one more.
    pub fn increment(&self, values: [&str; N]) {
        self.0.change(values, u64::default, |number| *number += 1);
    }

    /// There is one less.
    pub fn decrement(&self, values: [&str; N]) {
        self.0.change(values, u64::default, |number| *number = number.saturating_sub(1));
    }

    /// Adds the family. A series stays when its number is 0 again.
    pub fn add_to(&self, families: &mut Families) {
        families.gauge(self.0.name, self.0.help, self.0.series(|value| number(*value)));
    }
}

/// The histograms of one family by the values of their labels.
#[derive(Debug)]
pub struct Histograms<const N: usize> {
    family: Family<N, HistogramSample>,
    bounds: &'static [f64],
}

impl<const N: usize> Histograms<N> {
    /// None yet; `bounds` are the upper bounds of the buckets, in rising order.
    pub const fn new(name: &'static str, help: &'static str, labels: [&'static str; N], bounds: &'static [f64]) -> Self {
        Self { family: Family::new(name, help, labels), bounds }
    }

    /// Adds the series without a value, if it does not exist.
    pub fn declare(&self, values: [&str; N]) {
        self.family.change(values, || HistogramSample::new(self.bounds), |_| {});
    }

    /// Counts one value.
    pub fn observe(&self, values: [&str; N], value: f64) {
        self.family.change(values, || HistogramSample::new(self.bounds), |sample| sample.observe(value));
    }

    /// Adds the family.
    pub fn add_to(&self, families: &mut Families) {
        families.histogram(self.family.name, self.family.help, self.family.series(HistogramSample::clone));
    }
}

/// The names and the values of the labels of a series.
type Labels<const N: usize> = Zip<array::IntoIter<&'static str, N>, array::IntoIter<String, N>>;

/// A family with its series, in the order of their label values. A value that has a series is changed without an allocation.
#[derive(Debug)]
struct Family<const N: usize, V> {
    name: &'static str,
    help: &'static str,
    labels: [&'static str; N],
    series: Mutex<Vec<([String; N], V)>>,
}

impl<const N: usize, V> Family<N, V> {
    const fn new(name: &'static str, help: &'static str, labels: [&'static str; N]) -> Self {
        Self { name, help, labels, series: Mutex::new(Vec::new()) }
    }

    /// Changes the value of a series, which is `new` at first.
    fn change(&self, values: [&str; N], new: impl FnOnce() -> V, change: impl FnOnce(&mut V)) {
        let mut series = self.series.lock();
        let index = series.binary_search_by(|(of, _)| of.iter().map(String::as_str).cmp(values)).unwrap_or_else(|index| {
            series.insert(index, (values.map(str::to_owned), new()));
            index
        });
        if let Some((_, value)) = series.get_mut(index) {
            change(value);
        }
    }

    /// What `sample` makes of each series, with the names and the values of the labels.
    fn series<S>(&self, sample: impl Fn(&V) -> S) -> Vec<(Labels<N>, S)> {
        let series = self.series.lock();
        series.iter().map(|(values, value)| (self.labels.into_iter().zip(values.clone()), sample(value))).collect()
    }
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

    #[test]
    fn a_series_is_that_of_its_label_values_alone() {
        let (counters, gauges) = (Counters::new("c_total", "Cs.", ["of", "by"]), Gauges::new("g", "Gs.", ["of"]));
        for values in [["b", "c"], ["a", "bc"], ["ab", "c"], ["a", "bc"]] {
            counters.count(values);
        }
        gauges.set(["z"], 7);
        counters.add(["0", "0"], 0);
        let histograms = Histograms::new("h_seconds", "Hs.", [], &[1.0]);
        histograms.declare([]);
        ["y", "y", "x"].into_iter().for_each(|of| gauges.increment([of]));
        ["y", "x", "x"].into_iter().for_each(|of| gauges.decrement([of]));
        let mut families = Families::default();
        counters.add_to(&mut families);
        gauges.add_to(&mut families);
        histograms.add_to(&mut families);
        assert_eq!(
            families.text(),
            "# HELP c_total Cs.\n# TYPE c_total counter\nc_total{by=\"0\",of=\"0\"} 0\nc_total{by=\"bc\",of=\"a\"} 2\nc_total{by=\"c\",of=\"ab\"} 1\n\
             c_total{by=\"c\",of=\"b\"} 1\n# HELP g Gs.\n# TYPE g gauge\ng{of=\"x\"} 0\ng{of=\"y\"} 1\ng{of=\"z\"} 7\n\
             # HELP h_seconds Hs.\n# TYPE h_seconds histogram\nh_seconds_bucket{le=\"1\"} 0\nh_seconds_bucket{le=\"+Inf\"} 0\n\
             h_seconds_sum 0\nh_seconds_count 0\n"
        );
    }
}
