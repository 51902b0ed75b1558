//! `/healthz`, `/livez`, `/readyz` and each of their checks, as upstream words them.

use std::time::Duration;

use axum::body::Body;
use http::request::Parts;
use http::{Method, Response, StatusCode};

use crate::app::App;
use crate::handle::text;
use crate::status::{ApiError, ApiResult};
use crate::wire::query::Query;

/// The store must answer within this time.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// Which of the three, and which of its checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint<'a> {
    name: &'static str,
    /// One check alone; empty for all.
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
        // A server that is stopping still lives, but takes no new work.
        let ready_only = (self.name == "readyz").then_some("shutdown");
        ["ping", "log", "etcd", "poststarthook/rbac/bootstrap-roles", "poststarthook/scheduling/bootstrap-system-priority-classes"]
            .into_iter()
            .chain(ready_only)
    }
}

/// Runs the checks.
pub(crate) async fn answer(app: &App, endpoint: Endpoint<'_>, parts: &Parts) -> ApiResult<Response<Body>> {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(ApiError::method_not_allowed());
    }
    let query = Query::parse(parts.uri.query());
    if !endpoint.check.is_empty() {
        if !endpoint.checks().any(|check| check == endpoint.check) {
            return Err(ApiError::no_such_resource());
        }
        return Ok(match passes(app, endpoint.check).await {
            true => text(StatusCode::OK, "ok"),
            false => text(StatusCode::INTERNAL_SERVER_ERROR, "internal server error: check failed\n"),
        });
    }
    let mut report = String::new();
    let mut failed = false;
    for check in endpoint.checks() {
        if query.all("exclude").any(|excluded| excluded == check) {
            report.push_str(&format!("[+]{check} excluded: ok\n"));
        } else if passes(app, check).await {
            report.push_str(&format!("[+]{check} ok\n"));
        } else {
            failed = true;
            report.push_str(&format!("[-]{check} failed: reason withheld\n"));
        }
    }
    let name = endpoint.name;
    Ok(match failed {
        true => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{report}{name} check failed\n")),
        false if query.get("verbose").is_some() => text(StatusCode::OK, format!("{report}{name} check passed\n")),
        false => text(StatusCode::OK, "ok"),
    })
}

/// Whether the store answers.
pub(crate) async fn is_store_well(app: &App) -> bool {
    matches!(tokio::time::timeout(STORE_TIMEOUT, app.store.head()).await, Ok(Ok(_)))
}

async fn passes(app: &App, check: &str) -> bool {
    match check {
        "etcd" => is_store_well(app).await,
        "shutdown" => !app.shutdown.is_cancelled(),
        // The rest was done before the server began to listen.
        _ => true,
    }
}
