//! `metrics.k8s.io`: what nodes and Pods use, as a metrics server answers. Nothing of it is stored. A task (`scrape.rs`) reads the
//! counters of all nodes, and a request gets the use between the last two readings (`api-usage`).
//!
//! An APIService with a Service takes the version over: its server answers then, and the task rests
//! ([why](../../../docs/decisions/0022-resource-metrics.md)). The answers, messages and columns are those of the metrics server.

pub(crate) mod scrape;
mod targets;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api_cache::{Object, Resource};
use api_model::kind::{GroupResource, METRICS};
use api_model::{go, meta, quantity};
use api_usage::{Readings, Use};
use axum::body::Body;
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::call::Call;
use crate::present::Presentation;
use crate::registry::{Internal, Served};
use crate::verbs::list::filter;
use api_wire::accept::Answer;
use api_wire::options::ListOptions;
use api_wire::status::{ApiError, ApiResult};

/// Whether a kind is one of the metrics of resources.
pub(crate) fn is_metrics(served: &Served) -> bool {
    served.kind.group == METRICS
}

/// `GET` of one node or Pod.
pub(crate) async fn get(call: &Call) -> ApiResult<Response<Body>> {
    let presentation = Presentation::negotiate(&call.served, &call.headers, &call.query, Answer::Object)?;
    let measured = Measured::of(&call.served);
    call.core.metrics_demand.ask().await;
    let object = measured.resource(call).get(&call.namespace, &call.name).ok_or_else(|| measured.unknown(&call.name))?;
    let readings = call.core.readings.load();
    let metrics = measured.metrics(&object, &readings, api_clock::now()).ok_or_else(|| measured.unmeasured(&object))?;
    Ok(presentation.unstored(StatusCode::OK, &Internal::new(metrics)))
}

/// `GET` of all that the selectors of the request select. What has no metrics yet is left out.
pub(crate) async fn list(call: &Call) -> ApiResult<Response<Body>> {
    let presentation = Presentation::negotiate(&call.served, &call.headers, &call.query, Answer::List)?;
    let options = ListOptions::parse(&call.query)?;
    let (measured, wanted) = (Measured::of(&call.served), filter(call, &options)?);
    call.core.metrics_demand.ask().await;
    let objects = measured.resource(call).list(&wanted, call.core.cache.applied()).items;
    let (readings, now) = (call.core.readings.load(), api_clock::now());
    let items = objects.iter().filter_map(|object| measured.metrics(object, &readings, now));
    Ok(presentation.value(StatusCode::OK, &presentation.list_of(items, json!({}))))
}

/// What is measured.
#[derive(Clone, Copy)]
enum Measured {
    Nodes,
    Pods,
}

impl Measured {
    fn of(served: &Served) -> Self {
        if served.kind.namespaced { Self::Pods } else { Self::Nodes }
    }

    /// The objects that are measured.
    fn resource(self, call: &Call) -> Arc<Resource> {
        let plural = match self {
            Self::Nodes => "nodes",
            Self::Pods => "pods",
        };
        call.core.cache.resource(&GroupResource::new("", plural))
    }

    /// There is no such object. The metrics server names nodes in the singular.
    fn unknown(self, name: &str) -> ApiError {
        let resource = match self {
            Self::Nodes => "node",
            Self::Pods => "pods",
        };
        ApiError::not_found(&GroupResource::new("", resource), name)
    }

    /// The object has no metrics yet.
    fn unmeasured(self, object: &Object) -> ApiError {
        let (resource, name) = match self {
            Self::Nodes => ("nodemetrics", object.name.to_string()),
            Self::Pods => ("podmetrics", format!("{}/{}", object.namespace, object.name)),
        };
        ApiError::not_found(&GroupResource::new(METRICS, resource), &name)
    }

    /// The metrics of an object; `None` as long as there are no two readings of it.
    fn metrics(self, object: &Object, readings: &Readings, now: Timestamp) -> Option<Value> {
        match self {
            Self::Nodes => {
                let used = readings.of_node(&object.name)?;
                let mut metrics = head("NodeMetrics", object, now, used.at_ms, used.window_ms);
                metrics.insert("usage".to_owned(), amounts(&used.usage));
                Some(Value::Object(metrics))
            }
            Self::Pods => {
                let used = readings.of_pod(&object.namespace, &object.name, object.node()?)?;
                let pod = object.value();
                let declared = containers(&pod);
                // A node may speak only of containers that the Pod has.
                let containers = used.usage.iter().filter(|container| declared.contains(&*container.name));
                let containers = containers.map(|container| json!({"name": &*container.name, "usage": amounts(&container.usage)}));
                let mut metrics = head("PodMetrics", object, now, used.at_ms, used.window_ms);
                metrics.insert("containers".to_owned(), containers.collect());
                Some(Value::Object(metrics))
            }
        }
    }
}

/// Everything but the use.
fn head(kind: &str, object: &Object, now: Timestamp, at_ms: i64, window_ms: i64) -> Map<String, Value> {
    let mut metadata = json!({"name": &*object.name, "creationTimestamp": meta::time(now)});
    if !object.namespace.is_empty() {
        api_wire::json::set(&mut metadata, &["namespace"], &*object.namespace);
    }
    if let Some(labels) = meta::labels(&object.value()).filter(|labels| !labels.is_empty()) {
        api_wire::json::set(&mut metadata, &["labels"], labels.clone());
    }
    let window = go::duration_text(Duration::from_millis(window_ms.unsigned_abs()));
    let timestamp = meta::time(Timestamp::from_millisecond(at_ms).unwrap_or(now));
    let fields = [
        ("kind", kind.into()),
        ("apiVersion", format!("{METRICS}/v1beta1").into()),
        ("metadata", metadata),
        ("timestamp", timestamp.into()),
        ("window", window.into()),
    ];
    fields.into_iter().map(|(field, value): (&str, Value)| (field.to_owned(), value)).collect()
}

/// The amounts in the metrics server's units.
fn amounts(usage: &Use) -> Value {
    let memory = i128::from(usage.memory_bytes).saturating_mul(BILLION);
    json!({"cpu": quantity::decimal_text(i128::from(usage.cpu_nano), false), "memory": quantity::binary_text(memory)})
}

const BILLION: i128 = 1_000_000_000;

/// The names of a Pod's containers of every kind.
fn containers(pod: &Value) -> BTreeSet<&str> {
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let lists = lists.into_iter().filter_map(|field| pod.get("spec")?.get(field)?.as_array());
    lists.flatten().filter_map(|container| container.get("name")?.as_str()).collect()
}
