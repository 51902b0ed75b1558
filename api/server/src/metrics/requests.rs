//! Numbers and durations of requests, under upstream's names.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api_metrics::prometheus::{self, Histogram, HistogramVec, IntCounter, IntCounterVec};
use api_metrics::{Families, counters, histograms};
use api_model::kind::Kind;
use api_wire::path::ResourcePath;
use http::{Method, StatusCode};
use parking_lot::Mutex;

use crate::registry::Served;

/// Upper bounds of the latency buckets, in seconds: some of upstream's.
const BUCKETS: [f64; 14] = [0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];
const LABELS: [&str; 7] = ["code", "group", "resource", "scope", "subresource", "verb", "version"];

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
        let declared = served.and_then(|served| served.kind.subresource(&path.subresource));
        let subresource = declared.and_then(|sub| SUBRESOURCES.iter().find(|name| **name == sub.name)).copied().unwrap_or_default();
        Self { verb, served: served.cloned(), subresource, scope }
    }

    /// The values of [`LABELS`].
    fn label_values(&self, status: StatusCode) -> [String; 7] {
        let kind = self.served.as_ref().map(|served| &served.kind);
        let [group, resource, version] =
            kind.map_or_else(Default::default, |kind| [kind.group.to_string(), kind.plural.to_string(), kind.version.to_string()]);
        [status.as_str().to_owned(), group, resource, self.scope.to_owned(), self.subresource.to_owned(), self.verb.to_owned(), version]
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

/// What distinguishes the series of two requests, without comparing text that clients sent.
type Key = (&'static str, u64, &'static str, &'static str, u16);

/// The counters of requests.
pub(crate) struct Requests {
    total: IntCounterVec,
    seconds: HistogramVec,
    /// The series by key: to find a series in a vector takes as long as its labels are.
    series: Mutex<HashMap<Key, Series>>,
}

struct Series {
    labels: [String; 7],
    total: IntCounter,
    /// Watches have none: they last as long as their clients want.
    seconds: Option<Histogram>,
}

impl Requests {
    pub(super) fn new() -> prometheus::Result<Self> {
        let total = counters(
            "apiserver_request_total",
            "Counter of apiserver requests broken out for each verb, group, version, resource, scope and HTTP response code.",
            &LABELS,
        )?;
        let seconds = histograms("apiserver_request_duration_seconds", "Response latency distribution in seconds.", &LABELS, &BUCKETS)?;
        Ok(Self { total, seconds, series: Mutex::default() })
    }

    /// Counts one request.
    pub(crate) fn observe(&self, observed: &Observed, status: StatusCode, took: Duration) {
        let id = observed.served.as_ref().map_or(0, |served| served.id);
        let key = (observed.verb, id, observed.subresource, observed.scope, status.as_u16());
        let mut all = self.series.lock();
        let series = all.entry(key).or_insert_with(|| self.new_series(observed.label_values(status), observed.verb));
        series.total.inc();
        if let Some(seconds) = &series.seconds {
            seconds.observe(took.as_secs_f64());
        }
    }

    fn new_series(&self, labels: [String; 7], verb: &str) -> Series {
        let seconds = (verb != "WATCH").then(|| self.seconds.with_label_values(&labels));
        Series { total: self.total.with_label_values(&labels), seconds, labels }
    }

    /// Drops the series of a kind, also those of an earlier definition of it.
    pub(super) fn forget(&self, kind: &Kind) {
        let is_of_kind = |[_, group, resource, _, _, _, version]: &[String; 7]| {
            (group.as_str(), resource.as_str(), version.as_str()) == (kind.group.as_str(), kind.plural.as_str(), kind.version.as_str())
        };
        let mut all = self.series.lock();
        for (_, series) in all.extract_if(|_, series| is_of_kind(&series.labels)) {
            // Two definitions of the kind share the series in the vectors; the second removal finds none.
            let _absent = (self.total.remove_label_values(&series.labels), self.seconds.remove_label_values(&series.labels));
        }
    }

    pub(super) fn collect(&self, families: &mut Families) {
        families.collect(&self.total);
        families.collect(&self.seconds);
    }
}
