//! External metrics that a controller of this process computes: the autoscaler of Pods reads them without a request, all others
//! through `external.metrics.k8s.io`.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use api_model::message::Message;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

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
