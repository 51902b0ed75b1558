//! `custom.metrics.k8s.io`: the version that is served, and metrics of Pods and other objects.

use std::time::Duration;

use api_model::selector::Selector;
use jiff::SignedDuration;
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, LabelSelector, Time};
use serde::Deserialize;
use tokio::time::Instant;

use super::error::{self, MetricsError};
use super::{List, Metrics, PodMetric, PodMetrics, instant, milli, text};

const GROUP: &str = "custom.metrics.k8s.io";
/// The versions that this client can read.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// The version is asked for again after this time, upstream's period.
const VERSION_PERIOD: Duration = Duration::from_secs(15);
/// The window of a metric that names none, upstream's `metricServerDefaultMetricWindow`.
const WINDOW: SignedDuration = SignedDuration::from_mins(1);

/// When the version was read, and the version.
pub type VersionOfApi = (Instant, &'static str);

/// A value in either version.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetricValue {
    described_object: ObjectReference,
    timestamp: Option<Time>,
    /// `v1beta1` calls it `window`.
    #[serde(alias = "window")]
    window_seconds: Option<i64>,
    value: Quantity,
}

impl Metrics {
    /// The values of a metric of each selected Pod.
    pub async fn pods(
        &self,
        namespace: &str,
        selector: &Selector,
        metric: &str,
        metric_selector: Option<&LabelSelector>,
    ) -> Result<PodMetrics, MetricsError> {
        let path = format!("namespaces/{namespace}/pods/*/{metric}");
        let query = [("labelSelector", selector.to_string()), ("metricLabelSelector", text(metric_selector)?)];
        let list = self.custom(&path, &query, "pods.custom.metrics.k8s.io *").await?;
        if list.items.is_empty() {
            return Err(MetricsError::Empty(error::CUSTOM));
        }
        let sample = |one: &MetricValue| PodMetric {
            timestamp: instant(one.timestamp.as_ref()),
            window: one.window_seconds.map_or(WINDOW, SignedDuration::from_secs),
            value: milli(&one.value),
        };
        Ok(list.items.iter().map(|one| (one.described_object.name.clone().unwrap_or_default(), sample(one))).collect())
    }

    /// The value of a metric of one object.
    pub async fn object(
        &self,
        namespace: &str,
        object: &CrossVersionObjectReference,
        metric: &str,
        metric_selector: Option<&LabelSelector>,
    ) -> Result<i64, MetricsError> {
        let group = object.api_version.as_deref().unwrap_or_default().rsplit_once('/').map_or("", |(group, _)| group);
        let query = [("metricLabelSelector", text(metric_selector)?)];
        let (path, named) = if group.is_empty() && object.kind == "Namespace" {
            (format!("namespaces/{namespace}/metrics/{metric}"), format!("metrics.{GROUP} {metric}"))
        } else {
            let resource = self.resource_of(group, &object.kind).await?;
            (format!("namespaces/{namespace}/{resource}/{}/{metric}", object.name), format!("{resource}.{GROUP} {}", object.name))
        };
        let list = self.custom(&path, &query, &named).await?;
        match list.items.as_slice() {
            [one] => Ok(milli(&one.value)),
            items => Err(failed(format!("the custom metrics API server returned {} results when we asked for exactly one", items.len()))),
        }
    }

    async fn custom(&self, path: &str, query: &[(&str, String)], named: &str) -> Result<List<MetricValue>, MetricsError> {
        let version = self.version().await?;
        self.get(error::CUSTOM, &format!("/apis/{GROUP}/{version}/{path}"), query, named).await
    }

    /// `deployments.apps` for the kind Deployment.
    async fn resource_of(&self, group: &str, kind: &str) -> Result<String, MetricsError> {
        let named = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let unmapped = |why: String| failed(format!("unable to map kind {named} to resource: {why}"));
        let resource = self.resources.find(|one| one.group == group && one.kind == kind).await;
        let resource = resource.map_err(|failure| unmapped(failure.message()))?;
        let unserved = || unmapped(format!("no matches for kind {kind:?} in group {group:?}"));
        resource.map(|resource| resource.group_resource()).ok_or_else(unserved)
    }

    /// The version to read: the group's preferred one, or the first that this client can read.
    async fn version(&self) -> Result<&'static str, MetricsError> {
        let last = *self.custom.lock();
        if let Some((_, version)) = last.filter(|(read_at, _)| read_at.elapsed() < VERSION_PERIOD) {
            return Ok(version);
        }
        let groups = self.client.list_api_groups().await.map_err(|error| failed(api_client::error::chain(&error)))?;
        let group = groups.groups.iter().find(|group| group.name == GROUP);
        let group = group.ok_or_else(|| failed(format!("no custom metrics API ({GROUP}) registered")))?;
        let version = readable(group).ok_or_else(|| failed("no known available metric versions found".to_owned()))?;
        *self.custom.lock() = Some((Instant::now(), version));
        Ok(version)
    }
}

fn readable(group: &APIGroup) -> Option<&'static str> {
    let offered = group.preferred_version.iter().chain(&group.versions);
    offered.into_iter().find_map(|offered| VERSIONS.into_iter().find(|version| *version == offered.version))
}

fn failed(problem: String) -> MetricsError {
    MetricsError::Fetch { api: error::CUSTOM, problem }
}
