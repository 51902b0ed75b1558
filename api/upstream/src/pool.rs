//! Pools of connections to other servers: to webhooks and to aggregated servers. A host of the form
//! `name.namespace.svc` is resolved to the endpoints of that Service, any other host by its name.
//!
//! If a pooled connection ends before any part of a request was sent, the request is sent over another connection. A
//! request that was sent is not repeated, since it may have been executed. The exception are requests that only read,
//! as in Go's transport. Such a request is repeated once, over a new connection, if a reused connection ended before
//! the first byte of the response.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use api_model::view::View;
use axum::body::Body;
use http::{Method, Request, Response, Uri};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio_rustls::TlsConnector;

use crate::backend::{self, Address, CONNECT_TIMEOUT, ConnectError, Driver, Secure, Tls};
use crate::failure::Failure;
use crate::resolve::{self, ResolveError};
use crate::reused::Reused;
use api_cache::Cache;

/// Idle connections per server: upstream's number.
const IDLE_MAX: usize = 25;
/// How long an idle connection is kept. Kubernetes' servers end idle connections after 90 seconds; this time is
/// shorter, so that no request meets that end.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// A connection pool. It exists as long as one of its clones.
pub type Http = legacy::Client<Dialer, Body>;

/// A pool of connections with this TLS. `limit` limits each connection attempt; an attempt continues even if its
/// request meanwhile got another connection. Requests have whole addresses: `https://host:port/path`.
pub fn pool(cache: &Arc<Cache>, tls: TlsConnector, limit: Duration) -> Http {
    legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(IDLE_MAX)
        .build(Dialer { cache: Arc::clone(cache), tls, limit })
}

/// A server with its connection pool.
pub struct Server {
    cache: Arc<Cache>,
    tls: TlsConnector,
    host: String,
    port: u16,
    http: Http,
}

impl Server {
    /// A server at a host and port, without connections.
    pub fn new(cache: &Arc<Cache>, tls: TlsConnector, host: &str, port: u16) -> Self {
        let http = pool(cache, tls.clone(), CONNECT_TIMEOUT);
        Self { cache: Arc::clone(cache), tls, host: host.to_owned(), port, http }
    }

    /// Opens a connection that no other request uses.
    pub async fn connect(&self, driver: &Driver) -> Result<SendRequest<Body>, ConnectError> {
        backend::speak(driver, dial(&*self.cache, &self.tls, (&self.host, self.port), CONNECT_TIMEOUT).await?).await
    }

    /// Sends a request over a pooled connection. The address of the request is path and query.
    pub async fn send(&self, driver: &Driver, mut request: Request<Body>) -> Result<Response<Incoming>, Failure> {
        let again = repeatable(&request);
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let whole = Uri::builder().scheme("https").authority(format!("{}:{}", self.host, self.port)).path_and_query(path).build();
        *request.uri_mut() = whole.map_err(|error| Failure::of_request(&error))?;
        match (send(&self.http, request).await, again) {
            (Err(failure), Some(again)) if failure.is_of_reuse => {
                tracing::debug!(host = self.host, why = failure.why, "asking again over a new connection");
                self.connect(driver).await?.send_request(again).await.map_err(|error| Failure::of_own(&error))
            }
            (answered, _) => answered,
        }
    }
}

/// A copy of the request, if it only reads.
fn repeatable(request: &Request<Body>) -> Option<Request<Body>> {
    let only_reads = matches!(*request.method(), Method::GET | Method::HEAD) && request.body().is_end_stream();
    only_reads.then(|| {
        let mut again = Request::new(Body::empty());
        *again.method_mut() = request.method().clone();
        *again.uri_mut() = request.uri().clone();
        *again.headers_mut() = request.headers().clone();
        again
    })
}

/// Sends a request over a pooled connection, or over a new one, which the pool keeps.
pub async fn send(http: &Http, request: Request<Body>) -> Result<Response<Incoming>, Failure> {
    http.request(request).await.map_err(|error| Failure::of_pooled(&error))
}

/// Opens connections for a pool.
#[derive(Clone)]
pub struct Dialer {
    cache: Arc<Cache>,
    tls: TlsConnector,
    limit: Duration,
}

impl tower::Service<Uri> for Dialer {
    type Response = TokioIo<Reused>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { cache, tls, limit } = self.clone();
        Box::pin(async move {
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
            let stream = dial(&*cache, &tls, (host, port_of(&uri)), limit).await.map_err(io::Error::other)?;
            Reused::new(stream).map(TokioIo::new)
        })
    }
}

/// The port of an `https` address.
pub fn port_of(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(443)
}

/// Tries the addresses of a host until one answers; `limit` is for each attempt.
async fn dial(view: &dyn View, tls: &TlsConnector, (host, port): (&str, u16), limit: Duration) -> Result<Secure, ConnectError> {
    let mut failure = ConnectError::from(ResolveError::NoEndpoints(host.to_owned()));
    let tls = Tls { connector: tls, name: host, subject: None };
    for (address, port) in resolve::targets(view, host, port)? {
        match backend::secure(&Address { host: address, port }, tls, limit).await {
            Ok(stream) => return Ok(stream),
            Err(why) => failure = why,
        }
    }
    Err(failure)
}
