//! Triggers: what says how much work there is. One file a type; each has the metric for the autoscaler, and reads a value.
//!
//! A new type is a file with a struct, a variant of [`Trigger`], and a line in [`Trigger::build`].

mod connections;
mod cron;
mod metrics_api;
mod prometheus;
#[cfg(test)]
mod requests;
mod resource;
pub mod scaled_service;
mod service_requests;
#[cfg(test)]
mod tests;
mod value;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api_client::informer::Informer;
use api_model::message::Message;
use api_model::quantity;
use api_model::selector::Selector;
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{ExternalMetricSource, MetricIdentifier, MetricSpec, MetricTarget};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use tokio::time::Instant;

use super::address::Addresses;
use super::auth::{self, Credentials};
use super::demand::Reports;
use super::http::Http;
use super::spec::{AuthenticationRef, TriggerSpec};
use crate::context::ControllerContext;
use crate::{concurrent, meta, pods};
use connections::Connections;
use cron::Cron;
use metrics_api::MetricsApi;
use prometheus::Prometheus;
use resource::Resource;
use service_requests::ServiceRequests;
use workload::Workload;

/// The types with a Service whose connections wait while there is no Pod.
pub const ACTIVATING: [&str; 2] = [connections::TYPE, service_requests::TYPE];
/// The types with a Service to whose Pods requests are counted.
pub const COUNTING: [&str; 1] = [service_requests::TYPE];
/// Triggers of one object. More are refused: each is a request in every polling interval.
pub const TRIGGERS_MAX: usize = 50;
/// Triggers of one object that are read at the same time, and authentications.
const READS_AT_ONCE: usize = 10;
/// The time for all of them together: a little more than that of one request.
const READS_TIME_MAX: Duration = Duration::from_secs(35);
/// Go's words for the end of a time.
const DEADLINE: &str = "context deadline exceeded";

/// What a trigger is built from.
pub struct Config<'a> {
    /// Its position in the list.
    pub index: usize,
    /// The namespace of the object.
    pub namespace: &'a str,
    /// What the user wrote.
    pub spec: &'a TriggerSpec,
    /// The credentials that it refers to.
    pub credentials: Credentials,
}

/// What triggers read from.
pub struct Sources {
    /// Pods.
    pub pods: Informer<Pod>,
    /// Other servers.
    pub http: Http,
    /// Connections and requests to Services.
    pub reports: Reports,
}

impl Sources {
    /// The sources of this process.
    pub fn new(context: &mut ControllerContext) -> Self {
        let (reserved, allowed) = (context.config.reserved.clone(), context.config.triggers_may_reach.clone());
        let (services, slices) = (context.informer(), context.informer());
        let addresses = Addresses::new(services, slices, &reserved.cluster_domain, reserved.addresses, allowed);
        Self { pods: context.informer(), http: Http::new(addresses), reports: Reports::new(context) }
    }

    /// The number of ready Pods that a selector selects.
    pub fn ready(&self, namespace: &str, selector: &str) -> i32 {
        let Ok(selector) = Selector::parse(selector) else { return 0 };
        let is_ready = |pod: &Pod| pods::is_ready(pod) && meta::matches(&selector, pod.metadata.labels.as_ref());
        let ready = self.pods.in_namespace(namespace).into_iter().filter(|pod| is_ready(pod)).count();
        i32::try_from(ready).unwrap_or(i32::MAX)
    }
}

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The value in thousandths.
    pub milli: i64,
    /// Whether the value is above the threshold of activation.
    pub is_active: bool,
}

/// A trigger with its metric.
pub struct Trigger {
    /// The metric for the autoscaler.
    pub metric: MetricSpec,
    /// Whether the autoscaler gets the value of the last look.
    pub is_cached: bool,
    source: Source,
}

enum Source {
    Connections(Connections),
    Cron(Cron),
    MetricsApi(Box<MetricsApi>),
    Prometheus(Box<Prometheus>),
    /// The autoscaler reads it itself.
    Resource,
    ServiceRequests(ServiceRequests),
    Workload(Workload),
}

impl Trigger {
    /// Reads the settings of a trigger; the error is upstream's.
    pub fn build(config: &Config<'_>) -> Result<Self, Message> {
        let (source, metric) = match config.spec.type_.as_str() {
            "cpu" | "memory" => (Source::Resource, Resource::parse(config)?),
            connections::TYPE => {
                let target = metric_type(config)?;
                let connections = Connections::parse(config)?;
                let metric = external(config, &connections.metric_name(), target, connections.target);
                (Source::Connections(connections), metric)
            }
            "cron" => {
                let target = metric_type(config)?;
                let cron = Cron::parse(config)?;
                let metric = external(config, &cron.metric_name(), target, 1.0);
                (Source::Cron(cron), metric)
            }
            "kubernetes-workload" => {
                let target = metric_type(config)?;
                let workload = Workload::parse(config)?;
                let metric = external(config, &workload.metric_name(), target, workload.target);
                (Source::Workload(workload), metric)
            }
            "metrics-api" => {
                let target = metric_type(config)?;
                let api = MetricsApi::parse(config)?;
                let metric = external(config, &api.metric_name(), target, api.target);
                (Source::MetricsApi(Box::new(api)), metric)
            }
            "prometheus" => {
                let target = metric_type(config)?;
                let prometheus = Prometheus::parse(config)?;
                let metric = external(config, "prometheus", target, prometheus.threshold);
                (Source::Prometheus(Box::new(prometheus)), metric)
            }
            service_requests::TYPE => {
                let target = metric_type(config)?;
                let requests = ServiceRequests::parse(config)?;
                let metric = external(config, &requests.metric_name(), target, requests.target);
                (Source::ServiceRequests(requests), metric)
            }
            other => return Err(format!("no scaler found for type: {other}").into()),
        };
        Ok(Self { metric, is_cached: config.spec.use_cached_metrics, source })
    }

    /// The name of the external metric; none for a resource.
    pub fn external_name(&self) -> Option<&str> {
        self.metric.external.as_ref().map(|external| external.metric.name.as_str())
    }

    /// The target of the external metric: its type, and its value in thousandths.
    pub fn target(&self) -> Option<(&str, i128)> {
        let target = &self.metric.external.as_ref()?.target;
        let value = target.average_value.as_ref().or(target.value.as_ref())?;
        Some((&target.type_, quantity::milli(&value.0).unwrap_or_default()))
    }

    /// Reads the value.
    pub async fn read(&self, sources: &Sources, now: Timestamp) -> Result<Sample, Message> {
        match &self.source {
            Source::Connections(connections) => connections.read(&sources.reports),
            Source::Cron(cron) => cron.read(now),
            Source::MetricsApi(api) => api.read(&sources.http).await,
            Source::Prometheus(prometheus) => prometheus.read(&sources.http, now).await,
            Source::Resource => Ok(Sample { milli: 0, is_active: true }),
            Source::ServiceRequests(requests) => requests.read(&sources.reports, &sources.pods, now),
            Source::Workload(workload) => Ok(workload.read(&sources.pods)),
        }
    }
}

/// Reads the values of all triggers of an object, in their order and within one deadline.
pub async fn read_all(triggers: &[Arc<Trigger>], sources: &Sources, now: Timestamp) -> Vec<Result<Sample, Message>> {
    let reads = triggers.iter().map(|trigger| trigger.read(sources, now));
    let results = concurrent::all(reads, READS_AT_ONCE, Instant::now() + READS_TIME_MAX).await;
    results.into_iter().map(|result| result.unwrap_or_else(|| Err(DEADLINE.into()))).collect()
}

/// Builds the trigger with an external metric of that name, and no other one.
pub async fn build_of(client: &kube::Client, namespace: &str, specs: &[TriggerSpec], metric: &str) -> Result<Option<Trigger>, Message> {
    let Some(index) = position(metric) else { return Ok(None) };
    let Some(spec) = specs.get(index).filter(|_| index < TRIGGERS_MAX) else { return Ok(None) };
    let credentials = match &spec.authentication_ref {
        Some(reference) => auth::credentials(client, namespace, reference).await?,
        None => Credentials::new(),
    };
    let trigger = Trigger::build(&Config { index, namespace, spec, credentials })?;
    Ok(Some(trigger).filter(|trigger| trigger.external_name() == Some(metric)))
}

/// The position of the trigger that a metric's name begins with; see [`external`].
fn position(metric: &str) -> Option<usize> {
    metric.strip_prefix('s')?.split_once('-')?.0.parse().ok()
}

/// Builds all triggers of an object, in their order. Triggers that refer to the same authentication share its credentials.
pub async fn build_all(client: &kube::Client, namespace: &str, specs: &[TriggerSpec]) -> Result<Vec<Arc<Trigger>>, Message> {
    if specs.len() > TRIGGERS_MAX {
        return Err(format!("{} triggers are more than {TRIGGERS_MAX}", specs.len()).into());
    }
    let references: BTreeSet<&AuthenticationRef> = specs.iter().filter_map(|spec| spec.authentication_ref.as_ref()).collect();
    let reads = references.iter().map(|reference| auth::credentials(client, namespace, reference));
    let read = concurrent::all(reads, READS_AT_ONCE, Instant::now() + READS_TIME_MAX).await;
    let read: BTreeMap<_, _> = references.into_iter().zip(read).collect();
    let mut triggers = Vec::new();
    for (index, spec) in specs.iter().enumerate() {
        let credentials = match &spec.authentication_ref {
            Some(reference) => read.get(reference).cloned().flatten().unwrap_or_else(|| Err(DEADLINE.into()))?,
            None => Credentials::new(),
        };
        triggers.push(Arc::new(Trigger::build(&Config { index, namespace, spec, credentials })?));
    }
    Ok(triggers)
}

impl Sample {
    /// A value, which is active above `activation`. Upstream's precision: thousandths; what is no number or below zero counts as
    /// zero.
    fn new(value: f64, activation: f64) -> Self {
        Self { milli: milli(value), is_active: value > activation }
    }
}

fn metric_type(config: &Config<'_>) -> Result<String, Message> {
    match config.spec.metric_type.as_str() {
        "" => Ok("AverageValue".to_owned()),
        "Utilization" => Err("error getting scaler metric type: 'Utilization' metric type is unsupported for external metrics, \
                              allowed values are 'Value' or 'AverageValue'"
            .into()),
        other => Ok(other.to_owned()),
    }
}

/// The metric of a trigger that the autoscaler reads from this process.
fn external(config: &Config<'_>, name: &str, type_: String, target: f64) -> MetricSpec {
    let value = Some(Quantity(quantity::decimal_text(i128::from(milli(target)) * 1_000_000, false)));
    let (average_value, value) = if type_ == "AverageValue" { (value, None) } else { (None, value) };
    let metric = MetricIdentifier { name: format!("s{}-{}", config.index, normalized(name)), selector: None };
    let target = MetricTarget { type_, average_value, value, average_utilization: None };
    MetricSpec { type_: "External".to_owned(), external: Some(ExternalMetricSource { metric, target }), ..MetricSpec::default() }
}

/// Upstream's `NormalizeString`: what cannot be in a path becomes a dash.
fn normalized(name: &str) -> String {
    name.replace(['/', '.', ':', '%', '(', ')'], "-")
}

fn milli(value: f64) -> i64 {
    let milli = value * 1_000.0;
    if milli.is_nan() || milli.is_infinite() || milli <= 0.0 {
        return 0;
    }
    // A quantity holds no more than 2^63-1.
    format!("{milli:.0}").parse().unwrap_or(i64::MAX)
}
