//! Numbers and durations of requests, and the text for Prometheus.

mod flow_control;
mod histogram;
pub(crate) mod policies;
pub(crate) mod webhooks;

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use parking_lot::Mutex;

use self::histogram::Histogram;
use api_cache::Cache;
use api_fairness::Report;

use crate::registry::Served;
use api_wire::path::ResourcePath;

/// Upper bounds of the latency buckets, in seconds: some of upstream's.
const BUCKETS: [f64; 14] = [0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

/// The labels of a counted request.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    verb: &'static str,
    served: Option<Arc<Served>>,
    subresource: &'static str,
    scope: &'static str,
}

impl Observed {
    /// A path that is no resource.
    pub(crate) fn path(method: &Method) -> Self {
        let verb = match *method {
            Method::GET | Method::HEAD => "GET",
            Method::POST => "POST",
            _ => "OTHER",
        };
        Self { verb, served: None, subresource: "", scope: "" }
    }

    /// A request for a resource. Only served names have series of their own: clients must not be able to make the number of
    /// series grow.
    pub(crate) fn resource(verb: &'static str, served: Option<&Arc<Served>>, path: &ResourcePath) -> Self {
        let verb = match verb {
            "get" => "GET",
            "list" => "LIST",
            "watch" => "WATCH",
            "create" => "POST",
            "update" => "PUT",
            "patch" => "PATCH",
            "delete" => "DELETE",
            "deletecollection" => "DELETECOLLECTION",
            _ => "OTHER",
        };
        let scope = match (path.name.is_empty(), path.namespace.is_empty()) {
            (false, _) => "resource",
            (true, false) => "namespace",
            (true, true) => "cluster",
        };
        let known = served.and_then(|served| served.kind.subresource(&path.subresource));
        let subresource = known.and_then(|sub| SUBRESOURCES.iter().find(|name| **name == sub.name)).copied().unwrap_or_default();
        Self { verb, served: served.cloned(), subresource, scope }
    }
}

const SUBRESOURCES: &[&str] = &[
    "approval",
    "attach",
    "binding",
    "ephemeralcontainers",
    "eviction",
    "exec",
    "finalize",
    "log",
    "portforward",
    "proxy",
    "resize",
    "scale",
    "status",
    "token",
];

type Key = (&'static str, u64, &'static str, &'static str, u16);

/// All counters.
#[derive(Default)]
pub(crate) struct Metrics {
    requests: Mutex<HashMap<Key, Series>>,
    pub(crate) webhooks: webhooks::Webhooks,
    pub(crate) policies: policies::Policies,
}

struct Series {
    served: Option<Arc<Served>>,
    took: Histogram<{ BUCKETS.len() }>,
}

/// Values of other parts at the time of a request for the metrics.
pub(crate) struct Gauges<'a> {
    pub(crate) cache: &'a Cache,
    /// Bytes that the store takes.
    pub(crate) store_bytes: u64,
    /// Audit events, and those that could not be written.
    pub(crate) audit: (u64, u64),
    pub(crate) flow_control: Report,
}

impl Metrics {
    /// Counts one request.
    pub(crate) fn observe(&self, observed: Observed, status: StatusCode, took: Duration) {
        let id = observed.served.as_ref().map_or(0, |served| served.id);
        let key = (observed.verb, id, observed.subresource, observed.scope, status.as_u16());
        let mut requests = self.requests.lock();
        let series = requests.entry(key).or_insert_with(|| Series { served: observed.served, took: Histogram::default() });
        series.took.observe(&BUCKETS, took.as_secs_f64());
    }

    /// Drops the series of a kind that is no longer served, or has changed.
    pub(crate) fn forget(&self, served: &Arc<Served>) {
        self.requests.lock().retain(|(_, counted, ..), _| *counted != served.id);
    }

    /// The text for Prometheus.
    pub(crate) fn render(&self, gauges: &Gauges<'_>) -> String {
        let mut out = String::with_capacity(16 * 1024);
        self.render_requests(&mut out);
        render_storage(&mut out, gauges.cache, gauges.store_bytes);
        render_audit(&mut out, gauges.audit);
        flow_control::render(&mut out, &gauges.flow_control);
        self.webhooks.render(&mut out);
        self.policies.render(&mut out);
        out.push_str(&api_tasks::metrics());
        render_process(&mut out);
        out
    }

    fn render_requests(&self, out: &mut String) {
        let requests = self.requests.lock();
        header(
            out,
            "apiserver_request_total",
            "counter",
            "Counter of apiserver requests broken out for each verb, group, version, resource, scope and HTTP response code.",
        );
        for (key, series) in requests.iter() {
            let _ = writeln!(out, "apiserver_request_total{{{},code=\"{}\"}} {}", labels(key, series), key.4, series.took.count);
        }
        header(out, "apiserver_request_duration_seconds", "histogram", "Response latency distribution in seconds.");
        for (key, series) in requests.iter().filter(|(key, _)| key.0 != "WATCH") {
            let labels = format!("{},code=\"{}\"", labels(key, series), key.4);
            series.took.render(out, "apiserver_request_duration_seconds", &labels, &BUCKETS);
        }
    }
}

fn labels(key: &Key, series: &Series) -> String {
    let (group, version, resource) =
        series.served.as_ref().map_or(("", "", ""), |served| (&served.kind.group, &served.kind.version, &served.kind.plural));
    format!(
        "verb=\"{}\",group=\"{group}\",version=\"{version}\",resource=\"{resource}\",subresource=\"{}\",scope=\"{}\"",
        key.0, key.2, key.3
    )
}

fn header(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn render_storage(out: &mut String, cache: &Cache, store_bytes: u64) {
    let resources = cache.resources();
    header(out, "apiserver_storage_objects", "gauge", "Number of stored objects at the time of last check split by kind.");
    for resource in &resources {
        let _ = writeln!(out, "apiserver_storage_objects{{resource=\"{}\"}} {}", resource.name, resource.objects_len());
    }
    header(out, "apiserver_longrunning_requests", "gauge", "Gauge of all active long-running apiserver requests.");
    for resource in &resources {
        let (group, name) = (&resource.name.group, &resource.name.resource);
        let _ = writeln!(
            out,
            "apiserver_longrunning_requests{{verb=\"WATCH\",group=\"{group}\",resource=\"{name}\"}} {}",
            resource.watchers_len()
        );
    }
    header(out, "apiserver_storage_size_bytes", "gauge", "Size of the storage database file physically allocated in bytes.");
    let _ = writeln!(out, "apiserver_storage_size_bytes {store_bytes}");
    header(out, "apiserver_storage_resource_version", "gauge", "The newest revision that reads see.");
    let _ = writeln!(out, "apiserver_storage_resource_version {}", cache.applied());
}

fn render_audit(out: &mut String, (events, errors): (u64, u64)) {
    header(out, "apiserver_audit_event_total", "counter", "Counter of audit events generated and sent to the audit backend.");
    let _ = writeln!(out, "apiserver_audit_event_total {events}");
    header(out, "apiserver_audit_error_total", "counter", "Counter of audit events that failed to be audited properly.");
    let _ = writeln!(out, "apiserver_audit_error_total{{plugin=\"log\"}} {errors}");
}

/// CPU time and memory of this process, as `/proc` has them.
fn render_process(out: &mut String) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the command in brackets, which may contain anything.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or_default();
    let (ticks, page) = (100.0, 4096.0);
    header(out, "process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.");
    let _ = writeln!(out, "process_cpu_seconds_total {}", (field(11) + field(12)) / ticks);
    header(out, "process_resident_memory_bytes", "gauge", "Resident memory size in bytes.");
    let _ = writeln!(out, "process_resident_memory_bytes {}", field(21) * page);
}
