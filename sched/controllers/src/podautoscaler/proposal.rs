//! What one metric proposes, and what the status says of it; or why it proposes nothing, in upstream's words.

mod of_pods;
mod of_total;

use api_model::quantity;
use k8s_openapi::api::autoscaling::v2::{MetricStatus, MetricValueStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::calculator::Calculator;
use super::metrics::MetricsError;
use super::source::{Reading, Source};

/// A number of replicas that a metric proposes.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The number.
    pub replicas: i32,
    /// The metric, for events.
    pub name: String,
    /// The metric's entry in the status.
    pub status: MetricStatus,
}

/// Why a metric proposes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Reason of the event and of the condition.
    pub reason: &'static str,
    /// Message of the event.
    pub message: String,
    /// The error among those of all metrics.
    pub error: String,
}

/// The target's numbers of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// In the spec.
    pub spec: i32,
    /// In the status.
    pub status: i32,
}

type Read = Result<Reading, MetricsError>;

/// The proposal of one metric from what was read.
pub fn propose(
    calculator: &Calculator<'_>,
    replicas: Replicas,
    namespace: &str,
    source: Source<'_>,
    read: Read,
) -> Result<Proposal, Invalid> {
    match source {
        Source::Resource { name, container, target } => of_pods::resource(calculator, replicas.spec, name, container, target, read),
        Source::Pods(source) => of_pods::pods(calculator, replicas.spec, source, read),
        Source::Object(source) => of_total::object(calculator, replicas, namespace, source, read),
        Source::External(source) => of_total::external(calculator, replicas, namespace, source, read),
        Source::Unknown(kind) => Err(Invalid::alike("InvalidMetricSourceType", format!("unknown metric source type {kind:?}"))),
    }
}

impl Invalid {
    fn new(reason: &'static str, message: String, error: String) -> Self {
        Self { reason, message, error }
    }

    fn alike(reason: &'static str, message: String) -> Self {
        Self { reason, error: message.clone(), message }
    }
}

fn of_type(kind: &str) -> MetricStatus {
    MetricStatus { type_: kind.to_owned(), ..MetricStatus::default() }
}

fn value(total: i64) -> MetricValueStatus {
    MetricValueStatus { value: Some(decimal(total)), ..MetricValueStatus::default() }
}

fn average(share: i64) -> MetricValueStatus {
    MetricValueStatus { average_value: Some(decimal(share)), ..MetricValueStatus::default() }
}

/// An amount of a resource as metrics servers write it: memory in binary units.
fn amount(resource: &str, milli: i64) -> Quantity {
    if resource == "memory" { Quantity(quantity::binary_text(nano(milli))) } else { decimal(milli) }
}

fn decimal(milli: i64) -> Quantity {
    Quantity(quantity::decimal_text(nano(milli), false))
}

fn nano(milli: i64) -> i128 {
    i128::from(milli) * 1_000_000
}
