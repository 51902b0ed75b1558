//! `service-requests`: the HTTP requests to the `wasi:http` Pods of a Service, by rate or by those in flight. It is Skiff's own, with the
//! two metrics of KEDA's HTTP add-on. Connections wait while there is no Pod, as with `service-connections`.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_client::demand::{Measurement as _, Requests};
use api_client::informer::{Informer, ObjectKey};
use api_model::message::Message;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, Service};

use super::{Config, Sample, scaled_service};
use crate::keda::demand::Reports;
use crate::keda::params::Params;
use crate::{meta, pods, service};

/// The type.
pub const TYPE: &str = "service-requests";
const RATE: &str = "targetRequestRate";
const CONCURRENCY: &str = "targetConcurrency";
/// The add-on's default for both.
const TARGET_DEFAULT: f64 = 100.0;
/// The time after which the node of a ready Pod has reported that it counts the Pod's requests.
const REPORTED_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    /// Requests a second.
    Rate,
    /// Requests in flight.
    Concurrency,
}

/// The settings.
#[derive(Debug)]
pub struct ServiceRequests {
    service: ObjectKey,
    metric: Metric,
    /// Requests a second, or requests in flight, of one replica.
    pub target: f64,
}

impl ServiceRequests {
    /// Reads the settings.
    pub fn parse(config: &Config<'_>) -> Result<Self, Message> {
        let mut params = Params::new(&config.spec.metadata);
        let service = scaled_service::parse(&mut params, config.namespace);
        let (metric, name) = match (params.get(RATE), params.get(CONCURRENCY)) {
            (None, Some(_)) => (Metric::Concurrency, CONCURRENCY),
            _ => (Metric::Rate, RATE),
        };
        if params.get(RATE).and(params.get(CONCURRENCY)).is_some() {
            params.fail(format!("{RATE} and {CONCURRENCY} exclude each other"));
        }
        let target = params.number_or(name, TARGET_DEFAULT);
        if target <= 0.0 {
            params.fail(format!("{name} must be a float greater than 0"));
        }
        params.fail_unknown(&[scaled_service::SERVICE, RATE, CONCURRENCY]);
        params.finish().map_err(|why| Message::from(format!("error parsing service requests metadata: {why}")))?;
        Ok(Self { service, metric, target })
    }

    /// The name of the metric.
    pub fn metric_name(&self) -> String {
        match self.metric {
            Metric::Rate => format!("requests-{}", self.service.name),
            Metric::Concurrency => format!("concurrency-{}", self.service.name),
        }
    }

    /// The requests. A connection that waits makes the trigger active at once.
    pub fn read(&self, reports: &Reports, pods: &Informer<Pod>, now: Timestamp) -> Result<Sample, Message> {
        let service = scaled_service::find(&reports.services, &self.service, "connections wait")?;
        let pods = selected(&service, pods);
        // A node speaks only of Services with a Pod that is bound to it.
        let names = pods.iter().filter_map(|pod| pods::node_name(pod));
        let nodes: BTreeMap<&str, Requests> = names.filter_map(|node| Some((node, reports.requests(&self.service, node)?))).collect();
        let (total, waiting) = (nodes.values().copied().fold(Requests::default(), Requests::plus), reports.demand(&self.service).waiting);
        if waiting == 0
            && let Some(pod) = pods.iter().find(|pod| is_uncounted(pod, &nodes, now))
        {
            let (pod, service) = (meta::name(&pod.metadata), &self.service);
            return Err(format!("requests to pod {pod} of service {service} are not counted: only wasi:http components count them").into());
        }
        let milli = match self.metric {
            Metric::Rate => total.milli_per_second,
            Metric::Concurrency => total.milli_in_flight,
        };
        Ok(Sample { milli: i64::try_from(milli).unwrap_or(i64::MAX), is_active: waiting > 0 || total.is_some() })
    }
}

/// The Pods behind a Service.
fn selected(service: &Service, pods: &Informer<Pod>) -> Vec<Arc<Pod>> {
    let Some(selector) = service::selector(service) else { return Vec::new() };
    let mut pods = pods.in_namespace(meta::namespace(&service.metadata));
    pods.retain(|pod| pods::is_active(pod) && meta::matches(&selector, pod.metadata.labels.as_ref()));
    pods
}

/// Whether a Pod has been ready for long, and its node, which is ready too, counts no requests. Without this, a workload that does not count would look idle,
/// and would be scaled to zero while it is used.
fn is_uncounted(pod: &Pod, nodes: &BTreeMap<&str, Requests>, now: Timestamp) -> bool {
    let is_old = pods::ready_since(pod).is_some_and(|since| now.duration_since(since) > REPORTED_AFTER);
    is_old && pods::node_name(pod).and_then(|node| nodes.get(node)).is_some_and(|requests| requests.containers == 0)
}

#[cfg(test)]
mod tests;
