//! External metrics that a controller of this process computes: the autoscaler of Pods reads them without a request, all others get the
//! latest value through `external.metrics.k8s.io`.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};

use api_client::informer::ObjectKey;
use api_model::message::Message;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use parking_lot::Mutex;
use thiserror::Error;

/// The values in thousandths, or why there are none. `None`: the metric belongs to somebody else.
pub type Values<'a> = Pin<Box<dyn Future<Output = Option<Result<Vec<i64>, Message>>> + Send + 'a>>;

/// A source of external metrics.
pub trait ExternalMetrics: Send + Sync {
    /// The values of a metric in a namespace that the selector selects.
    fn read<'a>(&'a self, namespace: &'a str, metric: &'a str, selector: Option<&'a LabelSelector>) -> Values<'a>;
}

/// The source of this process, once it was set up. Clones share it.
#[derive(Clone, Default)]
pub struct ExternalSource(Arc<OnceLock<Arc<dyn ExternalMetrics>>>);

impl ExternalSource {
    /// Sets the source. Only the first one counts.
    pub fn set(&self, source: Arc<dyn ExternalMetrics>) {
        if self.0.set(source).is_err() {
            tracing::error!("a second source of external metrics is ignored");
        }
    }

    /// The source's answer; `None` if there is no source, or if the metric belongs to somebody else.
    pub async fn read(&self, namespace: &str, metric: &str, selector: Option<&LabelSelector>) -> Option<Result<Vec<i64>, Message>> {
        self.0.get()?.read(namespace, metric, selector).await
    }
}

/// A value of the last look, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latest {
    /// What the trigger said; none for a failure.
    pub read: Option<i64>,
    /// The same, or what the fallback makes of a failure.
    pub served: Option<i64>,
}

/// The values of the last look by metric.
pub type ByMetric = BTreeMap<String, Latest>;

/// The values of the last look at the triggers of each ScaledObject, with the time of the look.
#[derive(Default)]
pub struct LatestValues(Mutex<HashMap<ObjectKey, (Timestamp, ByMetric)>>);

impl LatestValues {
    /// Remembers the values of an object, in place of the earlier ones.
    pub fn put(&self, key: &ObjectKey, at: Timestamp, values: ByMetric) {
        self.0.lock().insert(key.clone(), (at, values));
    }

    /// Forgets the values of an object.
    pub fn remove(&self, key: &ObjectKey) {
        self.0.lock().remove(key);
    }

    /// What the trigger said at the last look; none for a failure.
    pub fn read(&self, key: &ObjectKey, metric: &str) -> Option<Option<i64>> {
        Some(self.0.lock().get(key)?.1.get(metric)?.read)
    }

    /// What the autoscaler would get for it, and the time of the look; none for a failure without a fallback.
    pub fn served(&self, key: &ObjectKey, metric: &str) -> Option<(Option<i64>, Timestamp)> {
        let all = self.0.lock();
        let (at, values) = all.get(key)?;
        Some((values.get(metric)?.served, *at))
    }
}

/// The latest values of the metrics of ScaledObjects, for the API server of this process. Clones share them. There are values only while
/// the controllers of this process work, which on several servers are those of the leader.
#[derive(Clone, Default)]
pub struct ScaledObjectMetrics(Arc<Mutex<Weak<LatestValues>>>);

/// Why a metric has no value.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NoValue {
    /// The controllers work in another process, or do not work yet.
    #[error("the controllers of this server do not work: those of another server may be the leader")]
    NotLeading,
    /// There is no such metric of such a ScaledObject, or its triggers were not looked at yet.
    #[error("no matching metrics found")]
    Unknown,
    /// The trigger failed at the last look, and the ScaledObject has no fallback.
    #[error("encountered error")]
    Failed,
}

impl ScaledObjectMetrics {
    /// The value in thousandths of a metric at the last look at the triggers of a ScaledObject, and the time of this look. It reads
    /// memory alone.
    ///
    /// # Errors
    /// When there is no value.
    pub fn latest(&self, namespace: &str, scaled_object: &str, metric: &str) -> Result<(i64, Timestamp), NoValue> {
        let values = self.0.lock().upgrade().ok_or(NoValue::NotLeading)?;
        let (value, at) = values.served(&ObjectKey::new(namespace, scaled_object), metric).ok_or(NoValue::Unknown)?;
        Ok((value.ok_or(NoValue::Failed)?, at))
    }

    /// Publishes the values of a controller, as long as it exists.
    pub(crate) fn publish(&self, values: &Arc<LatestValues>) {
        *self.0.lock() = Arc::downgrade(values);
    }
}
