//! What the entries of `spec.metrics` name, and what is read for them.

use api_model::selector::Selector;
use k8s_openapi::api::autoscaling::v2::{
    ExternalMetricSource, MetricIdentifier, MetricSpec, MetricTarget, ObjectMetricSource, PodsMetricSource,
};

use super::metrics::{Metrics, MetricsError, PodMetrics};
use crate::meta;

/// A metric of an autoscaler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source<'a> {
    /// A resource that the Pods use, or that one of their containers uses.
    Resource {
        /// The resource.
        name: &'a str,
        /// The container; all, without one.
        container: Option<&'a str>,
        /// The target.
        target: &'a MetricTarget,
    },
    /// A metric of the Pods.
    Pods(&'a PodsMetricSource),
    /// A metric of another object.
    Object(&'a ObjectMetricSource),
    /// A metric of something outside of the cluster.
    External(&'a ExternalMetricSource),
    /// The entry has an unknown type, or nothing for its type. The API server accepts neither.
    Unknown(&'a str),
}

/// What was read for a metric; values are in thousandths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A value of each Pod.
    Pods(PodMetrics),
    /// The sum of the values.
    Total(i64),
}

impl<'a> Source<'a> {
    /// The metric of an entry.
    pub fn new(spec: &'a MetricSpec) -> Self {
        let source = match spec.type_.as_str() {
            "Resource" => spec.resource.as_ref().map(|one| Self::Resource { name: &one.name, container: None, target: &one.target }),
            "ContainerResource" => {
                let source = spec.container_resource.as_ref();
                source.map(|one| Self::Resource { name: &one.name, container: Some(&one.container), target: &one.target })
            }
            "Pods" => spec.pods.as_ref().map(Self::Pods),
            "Object" => spec.object.as_ref().map(Self::Object),
            "External" => spec.external.as_ref().map(Self::External),
            _ => None,
        };
        source.unwrap_or(Self::Unknown(&spec.type_))
    }

    /// Whether the metric has a value without Pods.
    pub fn counts_without_pods(self) -> bool {
        matches!(self, Self::Object(_) | Self::External(_))
    }

    /// Reads the metric; of Pods, for those that `selector` selects.
    pub async fn read(self, metrics: &Metrics, namespace: &str, selector: &Selector) -> Result<Reading, MetricsError> {
        match self {
            Self::Resource { name, container, .. } => metrics.resource(namespace, selector, name, container).await.map(Reading::Pods),
            Self::Pods(PodsMetricSource { metric, .. }) => {
                metrics.pods(namespace, selector, &metric.name, metric.selector.as_ref()).await.map(Reading::Pods)
            }
            Self::Object(ObjectMetricSource { described_object, metric, .. }) => {
                metrics.object(namespace, described_object, &metric.name, metric.selector.as_ref()).await.map(Reading::Total)
            }
            Self::External(ExternalMetricSource { metric, .. }) => {
                let values = metrics.external(namespace, &metric.name, metric.selector.as_ref()).await?;
                Ok(Reading::Total(values.into_iter().fold(0, i64::saturating_add)))
            }
            Self::Unknown(_) => Ok(Reading::Total(0)),
        }
    }
}

/// The selector of a metric as Go prints it.
pub fn selector_text(metric: &MetricIdentifier) -> String {
    metric.selector.as_ref().map_or_else(|| "nil".to_owned(), meta::selector_text)
}
