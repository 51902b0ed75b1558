//! The metrics APIs, which other servers serve behind this one: `metrics.k8s.io` has the resources that Pods use,
//! `custom.metrics.k8s.io` metrics of Pods and other objects, `external.metrics.k8s.io` metrics of anything else.
//!
//! All values are in thousandths, as upstream computes with them.

mod custom;
mod error;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use api_model::go::parse_duration;
use api_model::selector::Selector;
use api_model::{percent, quantity};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::discovery::Resources;
use crate::external::ExternalSource;
use crate::meta;
use custom::VersionOfApi;
pub use error::MetricsError;

/// The value of a metric of one Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodMetric {
    /// The end of the time in which it was measured.
    pub timestamp: Timestamp,
    /// The length of that time.
    pub window: SignedDuration,
    /// The value in thousandths.
    pub value: i64,
}

/// Values by the names of Pods.
pub type PodMetrics = BTreeMap<String, PodMetric>;

/// The client of the three APIs.
pub struct Metrics {
    client: kube::Client,
    resources: Arc<Resources>,
    /// The external metrics of this process.
    own: ExternalSource,
    /// The version of the custom metrics API.
    custom: Mutex<Option<VersionOfApi>>,
}

#[derive(Deserialize)]
struct List<T> {
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

/// `metrics.k8s.io/v1beta1 PodMetrics`.
#[derive(Deserialize)]
struct ResourceMetrics {
    metadata: ObjectMeta,
    timestamp: Option<Time>,
    #[serde(default)]
    window: String,
    #[serde(default)]
    containers: Vec<ContainerMetrics>,
}

#[derive(Deserialize)]
struct ContainerMetrics {
    name: String,
    #[serde(default)]
    usage: BTreeMap<String, Quantity>,
}

/// `external.metrics.k8s.io/v1beta1 ExternalMetricValue`.
#[derive(Deserialize)]
struct ExternalMetricValue {
    value: Quantity,
}

impl Metrics {
    /// A client that has read nothing yet. It finds the resources of kinds in `resources`.
    pub fn new(client: kube::Client, resources: Arc<Resources>, own: ExternalSource) -> Self {
        Self { client, resources, own, custom: Mutex::default() }
    }

    /// How much of a resource each selected Pod uses: one of its containers, or all. Pods without that metric are missing.
    pub async fn resource(
        &self,
        namespace: &str,
        selector: &Selector,
        resource: &str,
        container: Option<&str>,
    ) -> Result<PodMetrics, MetricsError> {
        let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods");
        let query = [("labelSelector", selector.to_string())];
        let list: List<ResourceMetrics> = self.get(error::RESOURCE, &path, &query, "pods.metrics.k8s.io").await?;
        if list.items.is_empty() {
            return Err(MetricsError::Empty(error::RESOURCE));
        }
        Ok(list.items.iter().filter_map(|pod| Some((meta::name(&pod.metadata).to_owned(), pod.usage(resource, container)?))).collect())
    }

    /// The values of an external metric.
    pub async fn external(&self, namespace: &str, metric: &str, selector: Option<&LabelSelector>) -> Result<Vec<i64>, MetricsError> {
        if let Some(values) = self.own.read(namespace, metric, selector).await {
            return values.map_err(|problem| MetricsError::Fetch { api: error::EXTERNAL, problem: problem.into() });
        }
        let path = format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{metric}");
        let query = [("labelSelector", text(selector)?)];
        let named = format!("{metric}.external.metrics.k8s.io");
        let list: List<ExternalMetricValue> = self.get(error::EXTERNAL, &path, &query, &named).await?;
        if list.items.is_empty() {
            return Err(MetricsError::Empty(error::EXTERNAL));
        }
        Ok(list.items.iter().map(|one| milli(&one.value)).collect())
    }

    /// Reads a path with the parameters that are not empty. Errors say `named` for it, as client-go does.
    async fn get<T: DeserializeOwned>(
        &self,
        api: &'static str,
        path: &str,
        query: &[(&str, String)],
        named: &str,
    ) -> Result<T, MetricsError> {
        let set = query.iter().filter(|(_, value)| !value.is_empty());
        let query: Vec<String> = set.map(|(name, value)| format!("{name}={}", percent::encode(value, percent::QUERY_VALUE))).collect();
        let path = percent::encode(path, percent::PATH);
        let uri = if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) };
        let failed = |error: &kube::Error| MetricsError::Fetch { api, problem: error::words(error, named) };
        let request = http::Request::get(uri).body(Vec::new()).map_err(|error| failed(&kube::Error::HttpError(error)))?;
        self.client.request(request).await.map_err(|error| failed(&error))
    }
}

impl ResourceMetrics {
    fn usage(&self, resource: &str, container: Option<&str>) -> Option<PodMetric> {
        let used = |one: &ContainerMetrics| one.usage.get(resource).map(milli);
        let value = match container {
            Some(name) => used(self.containers.iter().find(|one| one.name == name)?)?,
            None if self.containers.is_empty() => return None,
            // A Pod without the metric of one container is a Pod without the metric.
            None => self.containers.iter().try_fold(0_i64, |sum, one| Some(sum.saturating_add(used(one)?)))?,
        };
        let nanos = parse_duration(&self.window).unwrap_or_default();
        Some(PodMetric { timestamp: instant(self.timestamp.as_ref()), window: SignedDuration::from_nanos(nanos), value })
    }
}

/// A quantity in thousandths, upstream's `MilliValue`.
pub fn milli(Quantity(text): &Quantity) -> i64 {
    let milli = quantity::milli(text).unwrap_or_default();
    i64::try_from(milli).unwrap_or(if milli < 0 { i64::MIN } else { i64::MAX })
}

/// A selector of metrics as a parameter. As upstream, no selector has the same text as an empty one.
fn text(selector: Option<&LabelSelector>) -> Result<String, MetricsError> {
    let Some(selector) = selector else { return Ok(String::new()) };
    Ok(Selector::from_label_selector(Some(&json!(selector)))?.to_string())
}

fn instant(time: Option<&Time>) -> Timestamp {
    meta::instant(time).unwrap_or(Timestamp::UNIX_EPOCH)
}
