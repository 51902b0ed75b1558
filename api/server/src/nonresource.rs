//! Paths that are no resource: discovery, OpenAPI, health, version, metrics, keys.

use std::sync::Arc;

use axum::body::Body;
use http::request::Parts;
use http::{HeaderValue, Method, Response, header};
use serde::Serialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::core::Core;
use crate::documents;
use crate::external_metrics;
use crate::health;
use crate::metrics::Gauges;
use crate::state_metrics;
use crate::version;
use api_wire::status::{ApiError, ApiResult};

/// The paths that `GET /` lists beside the groups.
const PATHS: &[&str] = &[
    "/.well-known/openid-configuration",
    "/api",
    "/api/v1",
    "/apis",
    "/apis/",
    "/healthz",
    "/livez",
    "/metrics",
    state_metrics::PATH,
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    "/openid/v1/jwks",
    "/readyz",
    "/version",
];

/// Answers such a path.
pub(crate) async fn answer(app: &Arc<App>, parts: &Parts) -> ApiResult<Response<Body>> {
    let path = parts.uri.path();
    if let Some(check) = health::Endpoint::of(path) {
        return health::answer(&app.core, check, parts).await;
    }
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(match is_known(&app.core, path) {
            true => ApiError::method_not_allowed(),
            false => ApiError::no_such_resource(),
        });
    }
    match path {
        "/" => Ok(indented(&json!({"paths": all_paths(&app.core)}))),
        "/version" | "/version/" => Ok(indented(&version::version())),
        "/metrics" => {
            let gauges = Gauges {
                cache: &app.core.cache,
                store_bytes: app.core.store.size_bytes().await.unwrap_or_default(),
                audit: app.audit.as_ref().map(|audit| audit.counts()).unwrap_or_default(),
                flow_control: app.gate.report(),
                readings: &app.core.readings.load(),
            };
            Ok(typed(app.core.metrics.render(gauges), api_metrics::TEXT_FORMAT))
        }
        state_metrics::PATH => Ok(typed(state_metrics::text(app).await?, api_metrics::TEXT_FORMAT)),
        "/openid/v1/jwks" => Ok(keepable(typed(app.core.authenticator.tokens().jwks().to_string(), "application/jwk-set+json"))),
        "/.well-known/openid-configuration" => Ok(keepable(json_answer(&app.core.authenticator.tokens().discovery()))),
        _ => documents::answer(&app.documents, &app.aggregation, parts).await,
    }
}

fn is_known(core: &Core, path: &str) -> bool {
    all_paths(core).iter().any(|known| known == path)
}

fn all_paths(core: &Core) -> Vec<String> {
    let mut paths: Vec<String> = PATHS.iter().map(|&path| path.to_owned()).collect();
    for kind in external_metrics::discovered(core).iter().filter(|kind| !kind.group.is_empty()) {
        paths.push(format!("/apis/{}", kind.group));
        paths.push(format!("/apis/{}", kind.api_version()));
    }
    paths.sort();
    paths.dedup();
    paths
}

/// An answer that upstream indents for everybody.
fn indented(value: &impl Serialize) -> Response<Body> {
    typed(serde_json::to_string_pretty(value).unwrap_or_default(), "application/json")
}

/// A JSON answer.
pub(crate) fn json_answer(value: &Value) -> Response<Body> {
    typed(value.to_string(), "application/json")
}

/// An answer that relying parties may keep for an hour: upstream's `Cache-Control` on issuer discovery.
fn keepable(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    response
}

fn typed(body: impl Into<Body>, media: &'static str) -> Response<Body> {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}
