//! Numbers and durations of requests, under upstream's names.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api_metrics::{Families, HistogramSample, number};
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
#[derive(Default)]
pub(crate) struct Requests(Mutex<HashMap<Key, Series>>);

struct Series {
    labels: [String; 7],
    count: u64,
    /// Watches have none: they last as long as their clients want.
    seconds: Option<HistogramSample>,
}

impl Requests {
    /// Counts one request.
    pub(crate) fn observe(&self, observed: &Observed, status: StatusCode, took: Duration) {
        let id = observed.served.as_ref().map_or(0, |served| served.id);
        let key = (observed.verb, id, observed.subresource, observed.scope, status.as_u16());
        let mut all = self.0.lock();
        let series = all.entry(key).or_insert_with(|| Series {
            labels: observed.label_values(status),
            count: 0,
            seconds: (observed.verb != "WATCH").then(|| HistogramSample::new(&BUCKETS)),
        });
        series.count += 1;
        if let Some(seconds) = &mut series.seconds {
            seconds.observe(took.as_secs_f64());
        }
    }

    /// Drops the series of a kind, also those of an earlier definition of the kind.
    pub(super) fn forget(&self, kind: &Kind) {
        let of_kind = [kind.group.as_str(), kind.plural.as_str(), kind.version.as_str()];
        self.0.lock().retain(|_, series| {
            let [_, group, resource, _, _, _, version] = &series.labels;
            [group.as_str(), resource.as_str(), version.as_str()] != of_kind
        });
    }

    pub(super) fn add_to(&self, families: &mut Families) {
        let by_labels = self.by_labels();
        let named = |values: &[String; 7]| LABELS.into_iter().zip(values.clone());
        families.counter(
            "apiserver_request_total",
            "Counter of apiserver requests broken out for each verb, group, version, resource, scope and HTTP response code.",
            by_labels.iter().map(|(labels, (count, _))| (named(labels), number(*count))),
        );
        families.histogram(
            "apiserver_request_duration_seconds",
            "Response latency distribution in seconds.",
            by_labels.iter().filter_map(|(labels, (_, seconds))| Some((named(labels), seconds.clone()?))),
        );
    }

    /// Counts and durations by labels: two definitions of a kind have two keys and the same labels.
    fn by_labels(&self) -> BTreeMap<[String; 7], (u64, Option<HistogramSample>)> {
        let mut by_labels: BTreeMap<_, (u64, Option<HistogramSample>)> = BTreeMap::new();
        for series in self.0.lock().values() {
            let (count, seconds) = by_labels.entry(series.labels.clone()).or_default();
            *count += series.count;
            match (seconds, &series.seconds) {
                (Some(sum), Some(more)) => sum.merge(more),
                (sum, more) => sum.clone_from(more),
            }
        }
        by_labels
    }
}
