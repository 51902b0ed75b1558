//! `external.metrics.k8s.io`: the metrics of ScaledObjects as KEDA's adapter serves them. Nothing of it is stored or computed for a
//! request: the controllers of this process have the value of the last look at a trigger. The name of a metric stands where other paths
//! have a resource, and a label selector names the ScaledObject.
//!
//! An APIService with a Service takes the version over, as for the metrics of resources
//! ([why](../../../docs/decisions/0022-resource-metrics.md)).

use std::sync::{Arc, LazyLock};

use api_model::kind::Kind;
use api_model::selector::Selector;
use api_model::{meta, quantity};
use axum::body::Body;
use http::{HeaderValue, Response, header};
use serde_json::json;

use crate::config::NoMetric;
use crate::core::Core;
use api_wire::path::ResourcePath;
use api_wire::query::Query;
use api_wire::status::{ApiError, ApiResult};

pub(crate) const GROUP: &str = "external.metrics.k8s.io";
pub(crate) const VERSION: &str = "v1beta1";
const SCALED_OBJECT_NAME: &str = "scaledobject.keda.sh/name";
/// A value in thousandths times this is in billionths.
const MILLION: i128 = 1_000_000;

/// The one row of discovery, which stands for metrics of any name. The kind is no row of the table of kinds: it has no objects.
static KIND: LazyLock<Arc<Kind>> = LazyLock::new(|| {
    Arc::new(Kind {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        kind: "ExternalMetricValueList".to_owned(),
        plural: "externalmetrics".to_owned(),
        singular: String::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: true,
        verbs: vec!["get".to_owned()],
        subresources: Vec::new(),
        custom: None,
    })
});

/// The kinds of discovery: those of the table, and the metrics if they are served.
pub(crate) fn discovered(core: &Core) -> Vec<Arc<Kind>> {
    let ours = core.config.external_metrics.as_ref().map(|_| Arc::clone(&KIND));
    core.registry.table().kinds.iter().cloned().chain(ours).collect()
}

/// Whether the path is one of a metric.
pub(crate) fn is_metric(core: &Core, found: &ResourcePath) -> bool {
    core.config.external_metrics.is_some() && (found.group.as_str(), found.version.as_str()) == (GROUP, VERSION)
}

/// The present value of a metric, as a list of one.
pub(crate) fn answer(core: &Core, found: &ResourcePath, verb: &str, query: &Query) -> ApiResult<Response<Body>> {
    let metrics = core.config.external_metrics.as_ref().ok_or_else(ApiError::no_such_resource)?;
    let ResourcePath { namespace, plural: metric, name, subresource, .. } = found;
    if namespace.is_empty() || !name.is_empty() || !subresource.is_empty() {
        return Err(ApiError::no_such_resource());
    }
    if verb != "list" {
        return Err(ApiError::method_not_allowed());
    }
    let selector = Selector::parse(query.filled("labelSelector").unwrap_or_default());
    let selector = selector.map_err(|error| ApiError::bad_request(error.to_string()))?;
    // A metric without this label belongs to an adapter, of which none is registered.
    let scaled_object = selector.exact(SCALED_OBJECT_NAME).ok_or_else(ApiError::no_such_resource)?;
    let (milli, at) = metrics.latest(namespace, scaled_object, metric).map_err(|why| match why {
        NoMetric::Elsewhere => ApiError::unavailable("the metrics of ScaledObjects are with the server whose controllers lead"),
        NoMetric::Unknown => ApiError::not_found_text(format!("no matching metrics found for {metric}")),
        NoMetric::Failed => ApiError::internal(format!("metric:{metric} encountered error")),
    })?;
    let value = quantity::decimal_text(i128::from(milli) * MILLION, false);
    let item = json!({"metricName": metric, "metricLabels": null, "timestamp": meta::time(at), "value": value});
    let list = json!({"kind": "ExternalMetricValueList", "apiVersion": format!("{GROUP}/{VERSION}"), "metadata": {}, "items": [item]});
    let mut response = Response::new(list.to_string().into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
