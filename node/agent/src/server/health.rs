//! `/healthz`, `/livez` and `/readyz` of a node: on its own server, and without TLS on a port of this machine alone, as
//! the kubelet has it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api_tasks::{Check, Tasks, report};
use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{query_pairs, refuse};
use crate::node::Node;

/// The highest number of connections of the local port, and how long each may take.
const CONNECTIONS_MAX: usize = 32;
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before the next attempt to bind a port that is in use, upstream's.
const LISTEN_AGAIN: Duration = Duration::from_secs(5);

/// Checks of all three endpoints, by upstream's names.
const CHECKS: [&str; 3] = ["ping", "log", "syncloop"];
/// An additional check of `/readyz`.
const READY: &str = "informer-sync";

/// The paths.
pub(super) fn routes() -> Router<Arc<Node>> {
    ["healthz", "livez", "readyz"].into_iter().fold(Router::new(), |router, endpoint| {
        let all = move |State(node): State<Arc<Node>>, RawQuery(query): RawQuery| async move {
            answer(&node, endpoint, &query.unwrap_or_default()).await
        };
        let one = move |State(node): State<Arc<Node>>, Path(check): Path<String>| async move { answer_one(&node, endpoint, &check).await };
        router.route(&format!("/{endpoint}"), get(all)).route(&format!("/{endpoint}/{{check}}"), get(one))
    })
}

fn checks(endpoint: &str) -> impl Iterator<Item = &'static str> {
    CHECKS.into_iter().chain((endpoint == "readyz").then_some(READY))
}

async fn passes(node: &Node, check: &str) -> bool {
    match check {
        "syncloop" => node.pulse.is_alive(node.config.sync_loop_max).await,
        // Every Pod of the node is known, and so are the objects that Pods are made from.
        READY => node.directory.is_complete() && node.objects.are_listed(),
        // The fact that there is an answer is the check.
        _ => true,
    }
}

async fn answer(node: &Node, endpoint: &str, query: &str) -> Response {
    let query = query_pairs(query);
    let mut found = Vec::new();
    for check in checks(endpoint) {
        let is_excluded = query.iter().any(|(name, value)| name == "exclude" && value == check);
        found.push((
            check,
            match is_excluded {
                true => Check::Excluded,
                false if passes(node, check).await => Check::Ok,
                false => Check::Failed,
            },
        ));
    }
    let report = report(endpoint, &found, query.iter().any(|(name, _)| name == "verbose"));
    if report.is_healthy { report.text.into_response() } else { refuse(StatusCode::INTERNAL_SERVER_ERROR, report.text) }
}

async fn answer_one(node: &Node, endpoint: &str, check: &str) -> Response {
    if !checks(endpoint).any(|name| name == check) {
        return refuse(StatusCode::NOT_FOUND, "404 page not found\n");
    }
    match passes(node, check).await {
        true => "ok".into_response(),
        false => refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal server error: check failed\n"),
    }
}

/// Serves the local port until cancelled.
pub(crate) async fn serve(node: Arc<Node>, address: SocketAddr, cancel: CancellationToken) {
    let tasks = Tasks::new(cancel.clone());
    let work = async {
        let listener = listen(address).await;
        let (router, slots) = (routes().with_state(node), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            let (stream, _) = api_tasks::accept(&listener).await;
            let router = router.clone();
            tasks.request("node-agent/health-connection", async move {
                if tokio::time::timeout(CONNECTION_TIMEOUT, connection(stream, router)).await.is_err() {
                    tracing::debug!("a client of the health port took too long");
                }
                drop(slot);
            });
        }
    };
    cancel.run_until_cancelled(work).await;
}

async fn listen(address: SocketAddr) -> TcpListener {
    let mut is_said = false;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(error) if is_said => tracing::debug!(%address, %error, "the health port is still taken"),
            Err(error) => tracing::warn!(%address, %error, "the health port cannot be had (--healthz-port); it is tried again"),
        }
        is_said = true;
        tokio::time::sleep(LISTEN_AGAIN).await;
    }
}

async fn connection(stream: TcpStream, router: Router) {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(CONNECTION_TIMEOUT).keep_alive(false);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await {
        tracing::debug!(%error, "a connection of the health port ended");
    }
}
