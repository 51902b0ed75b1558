//! HTTPS to webhooks: one question, one answer of bounded size, in bounded time. Connections are kept
//! and used again; webhooks that trust the same authorities share a pool.

use std::collections::HashMap;
use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use api_admission::webhook::{Endpoint, Webhook};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::Value;
use tokio::net::TcpStream;

use super::resolve;
use crate::cache::Cache;
use crate::tls;

/// The longest answer about one object; one that big is refused anyway.
const ANSWER_BYTES_MAX: usize = 3 * 1024 * 1024;
/// What of a refusing answer's body is passed on.
const COMPLAINT_BYTES_MAX: usize = 256;
/// Connections kept to one webhook, and how long, as upstream keeps them.
const IDLE_MAX: usize = 25;
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Sets of trusted authorities that pools are kept for; beyond that all start anew.
const POOLS_MAX: usize = 256;

type Http = legacy::Client<HttpsConnector<Dialer>, Full<Bytes>>;
/// PEM of the authorities; none means the machine's.
type Bundle = Option<Vec<u8>>;

/// Whom to call, and how much of an answer is waited for and read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callee<'c> {
    pub(crate) endpoint: &'c Endpoint,
    /// PEM of the authorities; none means the machine's.
    pub(crate) ca_bundle: &'c Option<Vec<u8>>,
    pub(crate) timeout: Duration,
    pub(crate) answer_bytes_max: usize,
}

impl<'c> From<&'c Webhook> for Callee<'c> {
    fn from(webhook: &'c Webhook) -> Self {
        let Webhook { endpoint, ca_bundle, timeout, .. } = webhook;
        Self { endpoint, ca_bundle, timeout: *timeout, answer_bytes_max: ANSWER_BYTES_MAX }
    }
}

/// The way to webhooks.
pub(crate) struct Client {
    cache: Arc<Cache>,
    by_bundle: Mutex<HashMap<Bundle, Http>>,
}

impl Client {
    pub(super) fn new(cache: Arc<Cache>) -> Self {
        Self { cache, by_bundle: Mutex::default() }
    }

    /// Posts a question; answers the JSON that comes back, or why there is none, in upstream's words.
    pub(crate) async fn post(&self, callee: Callee<'_>, body: String) -> Result<Value, String> {
        let http = self.http(callee.ca_bundle)?;
        let url = format!("{}?timeout={}s", callee.endpoint.url(), callee.timeout.as_secs());
        let request = Request::builder()
            .method(Method::POST)
            .uri(&url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(Full::from(body))
            .map_err(|error| format!("parse {url:?}: {error}"))?;
        let exchanged = tokio::time::timeout(callee.timeout, exchange(&http, request, callee.answer_bytes_max)).await;
        let (status, body) = match exchanged {
            Ok(Ok(answer)) => answer,
            Ok(Err(why)) => return Err(format!("Post {url:?}: {why}")),
            Err(_) => return Err(format!("Post {url:?}: context deadline exceeded")),
        };
        if !status.is_success() {
            return Err(refused(status, &body));
        }
        serde_json::from_slice(&body).map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))
    }

    fn http(&self, bundle: &Bundle) -> Result<Http, String> {
        let mut by_bundle = self.by_bundle.lock();
        if let Some(http) = by_bundle.get(bundle) {
            return Ok(http.clone());
        }
        let tls = trusting(bundle).map_err(|error| format!("unable to load root certificates: {error}"))?;
        let dialer = Dialer { cache: Arc::clone(&self.cache) };
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().wrap_connector(dialer);
        let http = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_MAX)
            .build(connector);
        if by_bundle.len() == POOLS_MAX {
            by_bundle.clear();
        }
        by_bundle.insert(bundle.clone(), http.clone());
        Ok(http)
    }
}

/// A client's side of TLS that trusts these authorities.
fn trusting(bundle: &Bundle) -> Result<ClientConfig, Box<dyn Error + Send + Sync>> {
    let config = ClientConfig::builder_with_provider(tls::provider()).with_safe_default_protocol_versions()?;
    let Some(pem) = bundle else {
        return Ok(config.with_native_roots()?.with_no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate?)?;
    }
    if roots.is_empty() {
        return Err("no certificates in caBundle".into());
    }
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

async fn exchange(http: &Http, request: Request<Full<Bytes>>, answer_bytes_max: usize) -> Result<(StatusCode, Bytes), String> {
    let answer: Response<Incoming> = http.request(request).await.map_err(|error| root_cause(&error))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), answer_bytes_max).collect().await.map_err(|error| root_cause(&*error))?;
    Ok((status, body.to_bytes()))
}

/// The innermost error: the layers around it only say that something failed.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// What upstream's client makes of an HTTP status.
fn refused(status: StatusCode, body: &[u8]) -> String {
    let body = String::from_utf8_lossy(body.get(..body.len().min(COMPLAINT_BYTES_MAX)).unwrap_or_default());
    match status {
        StatusCode::NOT_FOUND => "the server could not find the requested resource".to_owned(),
        StatusCode::UNAUTHORIZED => "the server has asked for the client to provide credentials".to_owned(),
        StatusCode::FORBIDDEN => body.trim().to_owned(),
        StatusCode::BAD_REQUEST => "the server rejected our request for an unknown reason".to_owned(),
        StatusCode::METHOD_NOT_ALLOWED => "the server does not allow this method on the requested resource".to_owned(),
        StatusCode::SERVICE_UNAVAILABLE => "the server is currently unable to handle the request".to_owned(),
        StatusCode::GATEWAY_TIMEOUT => "the server was unable to return a response in the time allotted".to_owned(),
        StatusCode::TOO_MANY_REQUESTS => "the server has received too many requests and has asked us to try again later".to_owned(),
        status if status.is_server_error() => {
            format!("an error on the server ({:?}) has prevented the request from succeeding", body.trim())
        }
        _ => format!("the server responded with the status code {} but did not return more information", status.as_u16()),
    }
}

/// Opens connections: to a Service's endpoints where the host is one, else wherever the name leads.
#[derive(Clone)]
struct Dialer {
    cache: Arc<Cache>,
}

impl tower::Service<Uri> for Dialer {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let cache = Arc::clone(&self.cache);
        Box::pin(async move {
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
            let targets = resolve::targets(&*cache, host, uri.port_u16().unwrap_or(443)).map_err(io::Error::other)?;
            let mut failure = io::Error::other(format!("no endpoints available for service {host:?}"));
            for (host, port) in targets {
                match TcpStream::connect((host.as_str(), port)).await {
                    Ok(stream) => {
                        stream.set_nodelay(true)?;
                        return Ok(TokioIo::new(stream));
                    }
                    Err(error) => failure = io::Error::other(format!("dial tcp {host}:{port}: connect: {}", words(&error))),
                }
            }
            Err(failure)
        })
    }
}

fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        _ => error.to_string(),
    }
}
