//! How often something took how long.

use std::fmt::Write;

/// Counts by duration; `bounds` are the same in every call, in seconds.
#[derive(Clone, Debug)]
pub(super) struct Histogram<const N: usize> {
    pub(super) count: u64,
    seconds: f64,
    buckets: [u64; N],
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Self { count: 0, seconds: 0.0, buckets: [0; N] }
    }
}

impl<const N: usize> Histogram<N> {
    /// Counts one.
    pub(super) fn observe(&mut self, bounds: &[f64; N], seconds: f64) {
        self.count += 1;
        self.seconds += seconds;
        for (bucket, bound) in self.buckets.iter_mut().zip(bounds).rev() {
            if seconds > *bound {
                break;
            }
            *bucket += 1;
        }
    }

    /// Appends the text for Prometheus.
    pub(super) fn render(&self, out: &mut String, name: &str, labels: &str, bounds: &[f64; N]) {
        for (bucket, bound) in self.buckets.iter().zip(bounds) {
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {bucket}");
        }
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", self.count);
        let _ = writeln!(out, "{name}_sum{{{labels}}} {}", self.seconds);
        let _ = writeln!(out, "{name}_count{{{labels}}} {}", self.count);
    }
}
