//! Families of metrics, and their text.

use prometheus::TextEncoder;
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};

/// The content type of [`Families::text`].
pub const TEXT_FORMAT: &str = prometheus::TEXT_FORMAT;

/// The families of one answer.
#[derive(Default)]
pub struct Families(Vec<MetricFamily>);

/// The values of a histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramSample {
    /// Upper bounds of the buckets, and the number of values up to each.
    pub buckets: Vec<(f64, u64)>,
    /// All values.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
}

impl HistogramSample {
    /// No values; `bounds` are the upper bounds of the buckets, in rising order.
    pub fn new(bounds: &[f64]) -> Self {
        Self { buckets: bounds.iter().map(|bound| (*bound, 0)).collect(), count: 0, sum: 0.0 }
    }

    /// Counts one value.
    pub fn observe(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        self.buckets.iter_mut().rev().take_while(|(bound, _)| value <= *bound).for_each(|(_, count)| *count += 1);
    }

    /// Adds the values of another histogram with the same bounds.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.buckets.iter_mut().zip(&other.buckets).for_each(|((_, count), (_, more))| *count += more);
    }
}

impl Families {
    /// Adds values that only grow, each with its labels.
    pub fn counter<L: IntoIterator<Item = (&'static str, String)>>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (L, f64)>,
    ) {
        self.add(name, help, MetricType::COUNTER, series, |metric, value| {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        });
    }

    /// Adds values that grow and shrink, each with its labels.
    pub fn gauge<L: IntoIterator<Item = (&'static str, String)>>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (L, f64)>,
    ) {
        self.add(name, help, MetricType::GAUGE, series, |metric, value| {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        });
    }

    /// Adds histograms, each with its labels.
    pub fn histogram<L: IntoIterator<Item = (&'static str, String)>>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (L, HistogramSample)>,
    ) {
        self.add(name, help, MetricType::HISTOGRAM, series, |metric, sample| {
            let mut histogram = Histogram::default();
            histogram.set_bucket(sample.buckets.into_iter().map(|(bound, count)| bucket(bound, count)).collect());
            histogram.set_sample_count(sample.count);
            histogram.set_sample_sum(sample.sum);
            metric.set_histogram(histogram);
        });
    }

    /// Sets the times at which the series of the family that was added last were measured, in ms since the epoch, in their order.
    /// Without them the values are of the moment of the answer.
    pub fn stamp(&mut self, times_ms: impl IntoIterator<Item = i64>) {
        let metrics = self.0.last_mut().into_iter().flat_map(|family| family.mut_metric());
        metrics.zip(times_ms).for_each(|(metric, time_ms)| metric.set_timestamp_ms(time_ms));
    }

    /// The text. A family without series is left out, as upstream does.
    pub fn text(mut self) -> String {
        self.0.retain(|family| !family.get_metric().is_empty());
        let mut text = String::with_capacity(16 * 1024);
        if let Err(error) = TextEncoder::new().encode_utf8(&self.0, &mut text) {
            tracing::error!(%error, "metrics are incomplete");
        }
        text
    }

    fn add<L: IntoIterator<Item = (&'static str, String)>, V>(
        &mut self,
        name: &str,
        help: &str,
        metric_type: MetricType,
        series: impl IntoIterator<Item = (L, V)>,
        set: impl Fn(&mut Metric, V),
    ) {
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(metric_type);
        let metrics = series.into_iter().map(|(labels, value)| {
            let mut labels: Vec<LabelPair> = labels.into_iter().map(label).collect();
            labels.sort_by(|a, b| a.name().cmp(b.name()));
            let mut metric = Metric::from_label(labels);
            set(&mut metric, value);
            metric
        });
        family.set_metric(metrics.collect());
        self.0.push(family);
    }
}

/// A count as a value. Values above 2^53 lose their last digits, as in Prometheus itself.
pub fn number(count: u64) -> f64 {
    count as f64
}

fn label((name, value): (&'static str, String)) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value);
    pair
}

fn bucket(bound: f64, count: u64) -> Bucket {
    let mut bucket = Bucket::default();
    bucket.set_upper_bound(bound);
    bucket.set_cumulative_count(count);
    bucket
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_prometheus_format() {
        let mut families = Families::default();
        families.counter("b_total", "Bs.", [([("z", "1".to_owned()), ("a", "say \"x\"\n".to_owned())], 3.0)]);
        families.gauge("empty", "Without series.", Vec::<([(&'static str, String); 0], f64)>::new());
        families.gauge("size_bytes", "A size.", [([], 1.5)]);
        families.stamp([1_700_000_000_123]);
        let sample = HistogramSample { buckets: vec![(0.5, 1), (2.0, 2)], count: 3, sum: 9.25 };
        families.histogram("took_seconds", "Times.", [([("kind", "k".to_owned())], sample)]);
        let expected = "# HELP b_total Bs.\n# TYPE b_total counter\nb_total{a=\"say \\\"x\\\"\\n\",z=\"1\"} 3\n\
            # HELP size_bytes A size.\n# TYPE size_bytes gauge\nsize_bytes 1.5 1700000000123\n\
            # HELP took_seconds Times.\n# TYPE took_seconds histogram\n\
            took_seconds_bucket{kind=\"k\",le=\"0.5\"} 1\ntook_seconds_bucket{kind=\"k\",le=\"2\"} 2\n\
            took_seconds_bucket{kind=\"k\",le=\"+Inf\"} 3\ntook_seconds_sum{kind=\"k\"} 9.25\ntook_seconds_count{kind=\"k\"} 3\n";
        assert_eq!(families.text(), expected);
    }
}
