//! The node's HTTPS server: logs, exec, port-forward, stats. A client needs a certificate of the cluster's CA, or a token that the
//! API server accepts. For a client that is neither the API server nor an administrator, the API server decides
//! (SubjectAccessReview).

mod attach;
mod authenticate;
mod authorize;
mod cadvisor;
mod channel;
mod command;
mod disks;
mod exec;
mod health;
mod http_metrics;
mod identity;
mod kubelet_families;
mod local_volumes;
mod log;
mod over_spdy;
mod over_websocket;
mod port_forward;
mod probe_metrics;
mod resource_metrics;
mod review_cache;
mod socket_bytes;
mod stats;
mod summary;
mod tls;
mod upgrade;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api_tasks::{ConnectionLimiter, ConnectionSlot, Tasks};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use axum::{Json, Router, middleware};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::error::AgentError;
use crate::node::{Entry, Node};
use authenticate::{Authenticator, Client};
use authorize::Authorizer;

pub(crate) use health::serve as serve_health;

/// The highest number of connections. Those of the API server and of administrators have priority.
const CONNECTIONS_MAX: usize = 1_024;
/// How long a client may take to shake hands.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection of HTTP/1 may be idle or within the head of a request: the kubelet's idle timeout.
const HEAD_TIMEOUT: Duration = Duration::from_secs(90);
/// A connection without a certificate ends after this time, unless one of its requests has been authenticated.
const UNAUTHENTICATED_MAX: Duration = Duration::from_secs(30);
/// Requests at a time on a connection of HTTP/2, with a certificate and without.
const STREAMS_MAX: u32 = 250;
const STREAMS_WITHOUT_CERTIFICATE_MAX: u32 = 16;
/// Bytes of the head of a request over HTTP/2.
const HEAD_BYTES_MAX: u32 = 64 * 1024;
/// A client of HTTP/2 that does not answer a ping in this time is gone.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The server, bound and not yet serving.
pub(crate) struct Server {
    listener: TcpListener,
    address: SocketAddr,
    tls: tls::Acceptors,
    node: Arc<Node>,
}

impl Server {
    /// Binds the port; `None` when the node has no serving certificate.
    pub(crate) async fn bind(node: Arc<Node>) -> Result<Option<Self>, AgentError> {
        let Some(serving) = node.config.serving.clone() else { return Ok(None) };
        let tls = tls::Acceptors::new(serving)?;
        let address = node.config.listen;
        let failed = |source| AgentError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Some(Self { listener, address, tls, node }))
    }

    /// The port it has.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Serves until cancelled; connections end then.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        tracing::info!(address = %self.address, "node server listens");
        let router = router(self.node.clone());
        let (slots, tasks) = (ConnectionLimiter::new(CONNECTIONS_MAX), Tasks::new(cancel.clone()));
        loop {
            let (stream, client) = tokio::select! {
                () = cancel.cancelled() => break,
                accepted = api_tasks::accept(&self.listener) => accepted,
            };
            let Some(slot) = slots.acquire(client.ip()) else {
                tracing::debug!(%client, "too many connections, one turned away");
                continue;
            };
            let (acceptor, router, cancel) = (self.tls.current(), router.clone(), cancel.clone());
            tasks.request("node-agent/connection", async move {
                tokio::select! {
                    () = cancel.cancelled() => {}
                    () = serve(stream, client.ip(), acceptor, router, &slot) => {}
                    () = slot.evicted() => tracing::debug!(%client, "a connection made room for others"),
                }
            });
        }
        tasks.wait().await;
    }
}

async fn serve(stream: TcpStream, address: IpAddr, acceptor: tokio_rustls::TlsAcceptor, router: Router, slot: &ConnectionSlot) {
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "no TLS connection"),
        Err(_) => return tracing::debug!("TLS handshake took too long"),
    };
    let user = identity::user(stream.get_ref().1);
    if user.as_ref().is_some_and(authorize::may_everything) {
        slot.protect();
    }
    let builder = connection_builder(user.is_some());
    let client = Client { address, user, is_authenticated: Arc::default() };
    let service = TowerToHyperService::new(router.layer(axum::Extension(client.clone())));
    tokio::select! {
        served = builder.serve_connection_with_upgrades(TokioIo::new(stream), service) => {
            if let Err(error) = served {
                tracing::debug!(error, "connection ended");
            }
        }
        () = unauthenticated(&client) => tracing::debug!(%address, "a connection ended on which nobody was authenticated"),
    }
}

fn connection_builder(has_certificate: bool) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(if has_certificate { STREAMS_MAX } else { STREAMS_WITHOUT_CERTIFICATE_MAX })
        .max_header_list_size(HEAD_BYTES_MAX)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// Returns when a connection has had its time without a request that was authenticated.
async fn unauthenticated(client: &Client) {
    if client.user.is_none() {
        tokio::time::sleep(UNAUTHENTICATED_MAX).await;
        if !client.is_authenticated.load(Ordering::Relaxed) {
            return;
        }
    }
    std::future::pending().await
}

/// All paths. Every request is authenticated and authorized first.
fn router(node: Arc<Node>) -> Router {
    Router::new()
        .route("/pods", get(pods))
        .route("/containerLogs/{namespace}/{pod}/{container}", get(log::logs))
        .route("/exec/{namespace}/{pod}/{container}", get(exec::exec).post(exec::exec))
        .route("/attach/{namespace}/{pod}/{container}", get(attach::attach).post(attach::attach))
        .route("/portForward/{namespace}/{pod}", get(port_forward::port_forward).post(port_forward::port_forward))
        .route(&format!("/{}/{{name}}", api_model::local_path::DIRECTORIES), delete(local_volumes::remove).put(local_volumes::grow))
        .route("/stats/summary", get(summary::summary))
        .route("/metrics", get(stats::metrics))
        .route("/metrics/resource", get(resource_metrics::metrics))
        .route("/metrics/cadvisor", get(cadvisor::metrics))
        .route("/metrics/probes", get(probe_metrics::metrics))
        .merge(health::routes())
        .route_layer(middleware::from_fn_with_state(Authorizer::new(node.clone()), authorize::check))
        .layer(middleware::from_fn_with_state(Authenticator::new(node.clone()), authenticate::check))
        .layer(middleware::from_fn_with_state(node.clone(), http_metrics::measure))
        .with_state(node)
}

/// Every Pod with its present status.
async fn pods(State(node): State<Arc<Node>>) -> Response {
    let items: Vec<_> = node
        .directory
        .all()
        .into_iter()
        .map(|entry| {
            let mut pod = (*entry.pod).clone();
            pod.status = Some((*entry.status).clone());
            pod
        })
        .collect();
    Json(json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})).into_response()
}

/// The names and values of a query, decoded.
fn query_pairs(query: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

/// A rejection as text, like the kubelet's.
fn refuse(status: StatusCode, message: impl Into<String>) -> Response {
    (status, message.into()).into_response()
}

/// The Pod of that name, or the refusal.
#[expect(clippy::result_large_err, reason = "the error is the response, made once a request")]
fn find(node: &Node, namespace: &str, pod: &str) -> Result<Arc<Entry>, Response> {
    let missing = || refuse(StatusCode::NOT_FOUND, format!("pod \"{namespace}/{pod}\" not found"));
    node.directory.find(namespace, pod).ok_or_else(missing)
}
