//! Connections to other servers that are kept and used again: to webhooks and to aggregated servers. A host of the form
//! `name.namespace.svc` leads to the endpoints of that Service, any other wherever its name leads.
//!
//! A request whose kept connection ends before any of it was sent goes over another one. One that was sent is not sent
//! again, since nobody knows whether it was done. Those that only read are (as Go's transport has it): once, over a new
//! connection, where one that had been good before ended before the first byte of the answer.

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

/// Connections kept to one server, as many as upstream keeps.
const IDLE_MAX: usize = 25;
/// How long one is kept: less than the 90 seconds after which Kubernetes' servers end it from their side, since a request
/// must not meet that end.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Connections that are kept: used for as long as a clone of this is there.
pub type Http = legacy::Client<Dialer, Body>;

/// What keeps connections that are made with this TLS, each within `limit`: also those are made to the end whose request
/// went over another one meanwhile. Requests have whole addresses: `https://host:port/path`.
pub fn pool(cache: &Arc<Cache>, tls: TlsConnector, limit: Duration) -> Http {
    legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(IDLE_MAX)
        .build(Dialer { cache: Arc::clone(cache), tls, limit })
}

/// A server, and the connections that are kept to it.
pub struct Server {
    cache: Arc<Cache>,
    tls: TlsConnector,
    host: String,
    port: u16,
    http: Http,
}

impl Server {
    /// A server at a host and port, without connections yet.
    pub fn new(cache: &Arc<Cache>, tls: TlsConnector, host: &str, port: u16) -> Self {
        let http = pool(cache, tls.clone(), CONNECT_TIMEOUT);
        Self { cache: Arc::clone(cache), tls, host: host.to_owned(), port, http }
    }

    /// A connection for one purpose, which nobody else uses.
    pub async fn connect(&self, driver: &Driver) -> Result<SendRequest<Body>, ConnectError> {
        backend::speak(driver, dial(&*self.cache, &self.tls, (&self.host, self.port), CONNECT_TIMEOUT).await?).await
    }

    /// Sends a request, whose address is path and query, over a connection that is kept.
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

/// The request once more, if it only reads.
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

/// Sends a request over a connection that is kept, or over a new one that will be.
pub async fn send(http: &Http, request: Request<Body>) -> Result<Response<Incoming>, Failure> {
    http.request(request).await.map_err(|error| Failure::of_kept(&error))
}

/// Opens connections.
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

/// The port that an `https` address leads to.
pub fn port_of(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(443)
}

/// Connects to the first that answers of those that a host stands for; `limit` is for each.
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
