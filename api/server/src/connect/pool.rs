//! Connections to other servers that are kept and used again: to webhooks and to aggregated servers. A host of the form
//! `name.namespace.svc` leads to the endpoints of that Service, any other wherever its name leads.
//!
//! A request whose kept connection ends before any of it was sent goes over another one. One that was sent is not sent
//! again: nobody knows whether it was done.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use api_model::view::View;
use axum::body::Body;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::backend::{self, Address, CONNECT_TIMEOUT, Secure};
use crate::app::App;
use crate::cache::Cache;
use crate::webhooks::resolve;

/// Connections kept to one server, as many as upstream keeps.
const IDLE_MAX: usize = 25;
/// How long one is kept: less than the 90 seconds after which Kubernetes' servers end it from their side, since a request
/// must not meet that end.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Connections that are kept: used for as long as a clone of this is there.
pub(crate) type Http = legacy::Client<Dialer, Body>;

/// What keeps connections that are made with this TLS, within `limit`; none for requests that all have a limit of their
/// own. They have whole addresses: `https://host:port/path`.
pub(crate) fn pool(cache: &Arc<Cache>, tls: TlsConnector, limit: Option<Duration>) -> Http {
    legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(IDLE_MAX)
        .build(Dialer { cache: Arc::clone(cache), tls, limit })
}

/// A connection for one purpose, which nobody else uses.
pub(crate) async fn connect(app: &Arc<App>, tls: &TlsConnector, host: &str, port: u16) -> Result<SendRequest<Body>, String> {
    backend::speak(app, dial(&*app.cache, tls, (host, port), Some(CONNECT_TIMEOUT)).await?).await
}

/// Sends a request over a connection that is kept, or over a new one that will be.
pub(crate) async fn send(http: &Http, request: Request<Body>) -> Result<Response<Incoming>, String> {
    http.request(request).await.map_err(|error| root_cause(&error))
}

/// The innermost error: the layers around it only say that something failed.
pub(crate) fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Opens connections.
#[derive(Clone)]
pub(crate) struct Dialer {
    cache: Arc<Cache>,
    tls: TlsConnector,
    limit: Option<Duration>,
}

impl tower::Service<Uri> for Dialer {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { cache, tls, limit } = self.clone();
        Box::pin(async move {
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
            let dialled = dial(&*cache, &tls, (host, port_of(&uri)), limit).await;
            dialled.map(MaybeHttpsStream::from).map_err(io::Error::other)
        })
    }
}

/// The port that an `https` address leads to.
pub(crate) fn port_of(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(443)
}

/// Connects to the first that answers of those that a host stands for; `limit` is for each.
async fn dial(view: &dyn View, tls: &TlsConnector, (host, port): (&str, u16), limit: Option<Duration>) -> Result<Secure, String> {
    let mut failure = format!("no endpoints available for service {host:?}");
    for (address, port) in resolve::targets(view, host, port)? {
        match backend::secure(&Address { host: address, port }, (tls, host), limit).await {
            Ok(stream) => return Ok(stream),
            Err(why) => failure = why,
        }
    }
    Err(failure)
}
