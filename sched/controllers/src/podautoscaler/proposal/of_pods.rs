//! Metrics that each Pod has: resources, and custom metrics of Pods.

use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, MetricStatus, MetricTarget, MetricValueStatus, PodsMetricSource, PodsMetricStatus, ResourceMetricStatus,
};

use super::{Invalid, Proposal, Read, amount, decimal, of_type};
use crate::podautoscaler::calculator::{Calculator, CalculatorError, Usage};
use crate::podautoscaler::metrics::{MetricsError, PodMetrics, milli};
use crate::podautoscaler::source::Reading;

/// A resource that the Pods use, or one of their containers.
pub fn resource(
    calculator: &Calculator<'_>,
    current: i32,
    name: &str,
    container: Option<&str>,
    target: &MetricTarget,
    read: Read,
) -> Result<Proposal, Invalid> {
    let invalid = |message: String| match container {
        None => Invalid::new("FailedGetResourceMetric", message.clone(), format!("failed to get {name} resource metric value: {message}")),
        Some(container) => {
            let error = format!("failed to get {container} container metric value: {message}");
            Invalid::new("FailedGetContainerResourceMetric", message, error)
        }
    };
    let (usage, percent, what) = match (&target.average_value, target.average_utilization) {
        (Some(average), _) => {
            let usage = of_pods(read, |metrics| calculator.average(current, milli(average), metrics, Some(name)));
            (usage.map_err(|why| invalid(why.during(name, "usage")))?, None, format!("{name} resource"))
        }
        (None, Some(percent)) => {
            let usage = of_pods(read, |metrics| calculator.utilization(current, percent, metrics, name, container));
            let usage = usage.map_err(|why| invalid(why.during(name, "utilization")))?;
            let whose = if container.is_some() { "container resource" } else { "resource" };
            (usage, Some(usage.percent), format!("{name} {whose} utilization (percentage of request)"))
        }
        (None, None) => {
            let neither = "neither an average utilization target nor an average value (usage) target was set";
            return Err(invalid(format!("invalid resource metric source: {neither}")));
        }
    };
    let current = MetricValueStatus { average_utilization: percent, average_value: Some(amount(name, usage.average)), value: None };
    let name = name.to_owned();
    let status = match container {
        None => MetricStatus { resource: Some(ResourceMetricStatus { name, current }), ..of_type("Resource") },
        Some(container) => {
            let container_resource = ContainerResourceMetricStatus { name, container: container.to_owned(), current };
            MetricStatus { container_resource: Some(container_resource), ..of_type("ContainerResource") }
        }
    };
    Ok(Proposal { replicas: usage.replicas, name: what, status })
}

/// A custom metric of the Pods.
pub fn pods(calculator: &Calculator<'_>, current: i32, source: &PodsMetricSource, read: Read) -> Result<Proposal, Invalid> {
    let PodsMetricSource { metric, target } = source;
    let wanted = target.average_value.as_ref().map(milli).unwrap_or_default();
    let usage = of_pods(read, |metrics| calculator.average(current, wanted, metrics, None)).map_err(|why| {
        let message = match why {
            NoUsage::Unread(why) => format!("unable to get metric {}: {why}", metric.name),
            NoUsage::Uncounted(why) => why.to_string(),
        };
        Invalid::new("FailedGetPodsMetric", message.clone(), format!("failed to get pods metric value: {message}"))
    })?;
    let current = MetricValueStatus { average_value: Some(decimal(usage.average)), ..MetricValueStatus::default() };
    let status = MetricStatus { pods: Some(PodsMetricStatus { metric: metric.clone(), current }), ..of_type("Pods") };
    Ok(Proposal { replicas: usage.replicas, name: format!("pods metric {}", metric.name), status })
}

/// Why a metric of Pods has no average.
enum NoUsage {
    /// It could not be read.
    Unread(MetricsError),
    /// It was read.
    Uncounted(CalculatorError),
}

impl NoUsage {
    fn during(self, resource: &str, what: &str) -> String {
        match self {
            Self::Unread(why) => format!("failed to get {resource} {what}: unable to get metrics for resource {resource}: {why}"),
            Self::Uncounted(why) => format!("failed to get {resource} {what}: {why}"),
        }
    }
}

fn of_pods(read: Read, count: impl FnOnce(PodMetrics) -> Result<Usage, CalculatorError>) -> Result<Usage, NoUsage> {
    match read.map_err(NoUsage::Unread)? {
        Reading::Pods(metrics) => count(metrics).map_err(NoUsage::Uncounted),
        Reading::Total(_) => Err(NoUsage::Uncounted(CalculatorError::NoMetrics)),
    }
}
