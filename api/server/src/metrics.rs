//! Numbers and durations of requests, and all metrics of the server at `/metrics`.

mod flow_control;
pub(crate) mod policies;
mod requests;
pub(crate) mod scrapes;
pub(crate) mod webhooks;

use std::sync::Arc;

use api_cache::Cache;
use api_fairness::Report;
use api_metrics::{Families, number};
use api_usage::Readings;

use crate::registry::Served;

pub(crate) use requests::Observed;

/// All counters.
#[derive(Default)]
pub(crate) struct Metrics {
    pub(crate) requests: requests::Requests,
    pub(crate) webhooks: webhooks::Webhooks,
    pub(crate) policies: policies::Policies,
    pub(crate) scrapes: scrapes::Scrapes,
}

/// Values of other parts at the time of a request for the metrics.
pub(crate) struct Gauges<'a> {
    pub(crate) cache: &'a Cache,
    /// Bytes that the store takes.
    pub(crate) store_bytes: u64,
    /// Audit events, and those that could not be written.
    pub(crate) audit: (u64, u64),
    pub(crate) flow_control: Report,
    /// What nodes and Pods use.
    pub(crate) readings: &'a Readings,
}

impl Metrics {
    /// Drops the series of a kind that is no longer served, or has changed.
    pub(crate) fn forget(&self, served: &Arc<Served>) {
        self.requests.forget(&served.kind);
    }

    /// The text for Prometheus.
    pub(crate) fn render(&self, gauges: Gauges<'_>) -> String {
        let mut families = Families::default();
        self.requests.add_to(&mut families);
        add_storage(&mut families, gauges.cache, gauges.store_bytes);
        add_audit(&mut families, gauges.audit);
        flow_control::add(&mut families, &gauges.flow_control);
        self.webhooks.add_to(&mut families);
        self.policies.add_to(&mut families);
        self.scrapes.add_to(&mut families, gauges.readings);
        api_metrics::add_process(&mut families);
        families.text()
    }
}

fn add_storage(families: &mut Families, cache: &Cache, store_bytes: u64) {
    let resources = cache.resources();
    families.gauge(
        "apiserver_storage_objects",
        "Number of stored objects at the time of last check split by kind.",
        resources.iter().map(|resource| ([("resource", resource.name.to_string())], number(resource.objects_len() as u64))),
    );
    families.gauge(
        "apiserver_longrunning_requests",
        "Gauge of all active long-running apiserver requests.",
        resources.iter().map(|resource| {
            let (group, name) = (resource.name.group.to_string(), resource.name.resource.to_string());
            ([("verb", "WATCH".to_owned()), ("group", group), ("resource", name)], number(resource.watchers_len() as u64))
        }),
    );
    families.gauge(
        "apiserver_storage_size_bytes",
        "Size of the storage database file physically allocated in bytes.",
        [([], number(store_bytes))],
    );
    families.gauge("apiserver_storage_resource_version", "The newest revision that reads see.", [([], number(cache.applied()))]);
}

fn add_audit(families: &mut Families, (events, errors): (u64, u64)) {
    families.counter(
        "apiserver_audit_event_total",
        "Counter of audit events generated and sent to the audit backend.",
        [([], number(events))],
    );
    families.counter(
        "apiserver_audit_error_total",
        "Counter of audit events that failed to be audited properly.",
        [([("plugin", "log".to_owned())], number(errors))],
    );
}
