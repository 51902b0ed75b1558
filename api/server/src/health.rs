//! `/healthz`, `/livez`, `/readyz` and each of their checks, as upstream words them.

use std::time::Duration;

use api_tasks::{Check, report};
use axum::body::Body;
use http::request::Parts;
use http::{Method, Response, StatusCode};

use crate::core::Core;
use api_wire::answer::text;
use api_wire::query::Query;
use api_wire::status::{ApiError, ApiResult};

/// The longest time of the store's answer.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// One of the three endpoints, and one of its checks or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint<'a> {
    name: &'static str,
    /// The name of one check; empty: all checks.
    check: &'a str,
}

impl<'a> Endpoint<'a> {
    /// The endpoint behind a path.
    pub(crate) fn of(path: &'a str) -> Option<Self> {
        ["healthz", "livez", "readyz"].into_iter().find_map(|name| {
            let rest = path.strip_prefix('/')?.strip_prefix(name)?;
            match rest {
                "" | "/" => Some(Self { name, check: "" }),
                rest => rest.strip_prefix('/').map(|check| Self { name, check }),
            }
        })
    }

    fn checks(self) -> impl Iterator<Item = &'static str> {
        // A server that is stopping is alive, but takes no new work.
        let ready_only = (self.name == "readyz").then_some("shutdown");
        [
            "ping",
            "log",
            "etcd",
            "informer-sync",
            "poststarthook/rbac/bootstrap-roles",
            "poststarthook/scheduling/bootstrap-system-priority-classes",
        ]
        .into_iter()
        .chain(ready_only)
    }
}

/// Runs the checks.
pub(crate) async fn answer(core: &Core, endpoint: Endpoint<'_>, parts: &Parts) -> ApiResult<Response<Body>> {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(ApiError::method_not_allowed());
    }
    let query = Query::parse(parts.uri.query());
    if !endpoint.check.is_empty() {
        if !endpoint.checks().any(|check| check == endpoint.check) {
            return Err(ApiError::no_such_resource());
        }
        return Ok(match passes(core, endpoint.check).await {
            true => text(StatusCode::OK, "ok"),
            false => text(StatusCode::INTERNAL_SERVER_ERROR, "internal server error: check failed\n"),
        });
    }
    let mut found = Vec::new();
    for check in endpoint.checks() {
        let is_excluded = query.all("exclude").any(|excluded| excluded == check);
        found.push((
            check,
            match is_excluded {
                true => Check::Excluded,
                false if passes(core, check).await => Check::Ok,
                false => Check::Failed,
            },
        ));
    }
    let report = report(endpoint.name, &found, query.get("verbose").is_some());
    Ok(text(if report.is_healthy { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR }, report.text))
}

/// Whether the store accepts writes.
pub(crate) async fn is_store_well(core: &Core) -> bool {
    matches!(tokio::time::timeout(STORE_TIMEOUT, core.store.check()).await, Ok(Ok(())))
}

/// Whether the cache, which answers every read, reaches the store's present revision within a moment, and its feeder answers. Each
/// check measures anew, so that a process that was stopped for a while is healthy again when it goes on.
async fn is_cache_current(core: &Core) -> bool {
    // A server that is stopping does not follow its store any more. When the store does not answer, the check `etcd` fails.
    if core.shutdown.is_cancelled() {
        return true;
    }
    match tokio::time::timeout(STORE_TIMEOUT, core.store.head()).await {
        Ok(Ok(head)) => !core.cache.is_closed() && core.cache.wait_for(head).await.is_ok() && core.cache.is_fed().await,
        Ok(Err(_)) | Err(_) => !core.cache.is_closed(),
    }
}

async fn passes(core: &Core, check: &str) -> bool {
    match check {
        "etcd" => is_store_well(core).await,
        "informer-sync" => is_cache_current(core).await,
        "shutdown" => !core.shutdown.is_cancelled(),
        // The other checks passed before the server began to listen.
        _ => true,
    }
}
