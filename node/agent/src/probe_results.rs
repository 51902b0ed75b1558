//! How many attempts of a Pod's probes there were, by result.

use std::collections::BTreeMap;
use std::time::Duration;

use api_metrics::HistogramSample;
use parking_lot::Mutex;

use crate::container::probes::ProbeKind;

/// The upper bounds of the buckets of attempts' times, in seconds: upstream's.
const DURATION_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The attempts of one probe since the agent started.
#[derive(Clone, Debug)]
pub(crate) struct ProbeSeries {
    pub(crate) successful: u64,
    pub(crate) failed: u64,
    /// The times of successful attempts in seconds.
    pub(crate) durations: HistogramSample,
}

/// The attempts of a Pod's probes, by container and kind. All instances of a container count together.
#[derive(Debug, Default)]
pub(crate) struct ProbeResults(Mutex<BTreeMap<(String, ProbeKind), ProbeSeries>>);

impl ProbeResults {
    /// Counts an attempt.
    pub(crate) fn count(&self, container: &str, kind: ProbeKind, success: bool, took: Duration) {
        let mut all = self.0.lock();
        let new = || ProbeSeries { successful: 0, failed: 0, durations: HistogramSample::new(&DURATION_BUCKETS) };
        let series = all.entry((container.to_owned(), kind)).or_insert_with(new);
        if success {
            series.successful += 1;
            series.durations.observe(took.as_secs_f64());
        } else {
            series.failed += 1;
        }
    }

    /// The attempts so far.
    pub(crate) fn series(&self) -> BTreeMap<(String, ProbeKind), ProbeSeries> {
        self.0.lock().clone()
    }
}
