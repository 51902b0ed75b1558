//! Metrics that have one value for all Pods: of other objects, and external ones.

use k8s_openapi::api::autoscaling::v2::{
    ExternalMetricSource, ExternalMetricStatus, MetricStatus, MetricValueStatus, ObjectMetricSource, ObjectMetricStatus,
};

use super::{Invalid, Proposal, Read, Replicas, average, of_type, value};
use crate::podautoscaler::calculator::Calculator;
use crate::podautoscaler::metrics::{MetricsError, milli};
use crate::podautoscaler::source::{Reading, selector_text};

/// A metric of another object.
pub fn object(
    calculator: &Calculator<'_>,
    replicas: Replicas,
    namespace: &str,
    source: &ObjectMetricSource,
    read: Read,
) -> Result<Proposal, Invalid> {
    let ObjectMetricSource { described_object: object, metric, target } = source;
    let invalid = |message: String, detail: &str| {
        let error = format!("failed to get object metric value: {detail}{message}");
        Invalid::new("FailedGetObjectMetric", message, error)
    };
    let total = |detail: &str| {
        let unread =
            |why: &MetricsError| format!("unable to get metric {} on {} {namespace}/{}: {why}", metric.name, object.kind, object.name);
        total_of(&read).map_err(|why| invalid(unread(why), detail))
    };
    let status = |current: MetricValueStatus| MetricStatus {
        object: Some(ObjectMetricStatus { described_object: object.clone(), metric: metric.clone(), current }),
        ..of_type("Object")
    };
    match (target.type_.as_str(), &target.value, &target.average_value) {
        ("Value", Some(wanted), _) => {
            let total = total("")?;
            let proposal = calculator.by_value(replicas.spec, total, milli(wanted)).map_err(|why| invalid(why.to_string(), ""))?;
            Ok(Proposal { replicas: proposal, name: format!("{} metric {}", object.kind, metric.name), status: status(value(total)) })
        }
        ("AverageValue", _, Some(wanted)) => {
            let total = total(&format!("failed to get {} object metric: ", metric.name))?;
            let (proposal, share) = calculator.by_share(replicas.status, total, milli(wanted));
            let name = format!("external metric {}({})", metric.name, selector_text(metric));
            Ok(Proposal { replicas: proposal, name, status: status(average(share)) })
        }
        _ => Err(invalid("invalid object metric source: neither a value target nor an average value target was set".to_owned(), "")),
    }
}

/// An external metric.
pub fn external(
    calculator: &Calculator<'_>,
    replicas: Replicas,
    namespace: &str,
    source: &ExternalMetricSource,
    read: Read,
) -> Result<Proposal, Invalid> {
    let ExternalMetricSource { metric, target } = source;
    let invalid = |message: String, detail: String| {
        let error = format!("failed to get {} external metric value: {detail}{message}", metric.name);
        Invalid::new("FailedGetExternalMetric", message, error)
    };
    let unread = |why: &MetricsError| format!("unable to get external metric {namespace}/{}/{}: {why}", metric.name, selector_text(metric));
    let name = format!("external metric {}({})", metric.name, selector_text(metric));
    let status = |current: MetricValueStatus| MetricStatus {
        external: Some(ExternalMetricStatus { metric: metric.clone(), current }),
        ..of_type("External")
    };
    match (&target.average_value, &target.value) {
        (Some(wanted), _) => {
            let detail = || format!("failed to get {} external metric: ", metric.name);
            let total = total_of(&read).map_err(|why| invalid(unread(why), detail()))?;
            let (proposal, share) = calculator.by_share(replicas.status, total, milli(wanted));
            Ok(Proposal { replicas: proposal, name, status: status(average(share)) })
        }
        (None, Some(wanted)) => {
            let detail = || format!("failed to get external metric {}: ", metric.name);
            let total = total_of(&read).map_err(|why| invalid(unread(why), detail()))?;
            let proposal = calculator.by_value(replicas.spec, total, milli(wanted));
            let proposal = proposal.map_err(|why| invalid(why.to_string(), detail()))?;
            Ok(Proposal { replicas: proposal, name, status: status(value(total)) })
        }
        (None, None) => {
            let message = "invalid external metric source: neither a value target nor an average value target was set";
            Err(invalid(message.to_owned(), String::new()))
        }
    }
}

fn total_of(read: &Read) -> Result<i64, &MetricsError> {
    match read {
        Ok(Reading::Total(total)) => Ok(*total),
        Ok(Reading::Pods(_)) => Ok(0),
        Err(why) => Err(why),
    }
}
