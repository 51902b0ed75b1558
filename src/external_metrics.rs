//! The metrics of ScaledObjects: the controllers of this process have them, its API server serves them.

use std::sync::Arc;

use api_server::{ExternalMetrics, NoMetric};
use jiff::Timestamp;
use sched_controllers::{NoValue, ScaledObjectMetrics};

struct OfControllers(ScaledObjectMetrics);

impl ExternalMetrics for OfControllers {
    fn latest(&self, namespace: &str, scaled_object: &str, metric: &str) -> Result<(i64, Timestamp), NoMetric> {
        self.0.latest(namespace, scaled_object, metric).map_err(|why| match why {
            NoValue::NotLeading => NoMetric::Elsewhere,
            NoValue::Unknown => NoMetric::Unknown,
            NoValue::Failed => NoMetric::Failed,
        })
    }
}

/// The metrics for the API server.
pub fn of(metrics: ScaledObjectMetrics) -> Arc<dyn ExternalMetrics> {
    Arc::new(OfControllers(metrics))
}
