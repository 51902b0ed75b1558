//! HTTPS requests to webhooks: one request and one response, with limits of size and time. Connections are pooled.
//! Webhooks that trust the same authorities share a pool.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api_admission::webhook::{Endpoint, Webhook};
use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use parking_lot::Mutex;
use serde_json::Value;

use crate::failure::root_cause;
use crate::pool::{self, Http, port_of};
use crate::resolve;
use crate::tls::{self, TlsError};
use api_cache::Cache;

/// The maximum of bytes of a response about one object. The server would reject a larger object anyway.
const ANSWER_BYTES_MAX: usize = 3 * 1024 * 1024;
/// The maximum of bytes of an error response's body in a message.
const COMPLAINT_BYTES_MAX: usize = 256;
/// The time limit of a connection attempt. It is a little longer than the maximum timeout of a webhook, which must end
/// first. An attempt continues even if its call meanwhile got another connection.
const DIAL_TIMEOUT: Duration = Duration::from_secs(31);
/// The maximum of pools. When it is reached, all pools are dropped.
const POOLS_MAX: usize = 256;

/// PEM of the authorities; `None` means those of the machine.
type Bundle = Option<Vec<u8>>;

/// The webhook to call, and the limits of the response.
#[derive(Clone, Copy, Debug)]
pub struct Callee<'c> {
    /// The address of the webhook.
    pub endpoint: &'c Endpoint,
    /// PEM of the authorities; `None` means those of the machine.
    pub ca_bundle: &'c Option<Vec<u8>>,
    /// The time limit of the response.
    pub timeout: Duration,
    /// The maximum of bytes of the response.
    pub answer_bytes_max: usize,
}

impl<'c> From<&'c Webhook> for Callee<'c> {
    fn from(webhook: &'c Webhook) -> Self {
        let Webhook { endpoint, ca_bundle, timeout, .. } = webhook;
        Self { endpoint, ca_bundle, timeout: *timeout, answer_bytes_max: ANSWER_BYTES_MAX }
    }
}

/// The key of a pool.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Pool {
    bundle: Bundle,
    /// The endpoints of the Service when the connections were made. When they change, calls use another pool, and the
    /// old connections end after their idle time. `None` if the host is no Service.
    endpoints: Option<Vec<(String, u16)>>,
}

/// Why a call of a webhook failed. The messages are upstream's.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The authorities of the webhook are unusable.
    #[error("unable to load root certificates: {0}")]
    Authorities(#[from] TlsError),
    /// The address is invalid.
    #[error("parse {url:?}: {error}")]
    Url {
        /// The address.
        url: String,
        /// The error.
        error: http::Error,
    },
    /// The webhook could not be reached, or the connection ended.
    #[error("Post {url:?}: {why}")]
    Post {
        /// The address.
        url: String,
        /// The innermost error.
        why: String,
    },
    /// The response did not arrive in time.
    #[error("Post {0:?}: context deadline exceeded")]
    TimedOut(String),
    /// The status of the response is no success.
    #[error("{0}")]
    Status(String),
    /// The response is no JSON.
    #[error("couldn't get version/kind; json parse error: {0}")]
    Json(#[from] serde_json::Error),
}

/// The client of webhooks.
pub struct Client {
    cache: Arc<Cache>,
    pools: Mutex<HashMap<Pool, Http>>,
}

impl Client {
    /// A client without connections. `cache` has the endpoints of Services.
    pub fn new(cache: Arc<Cache>) -> Self {
        Self { cache, pools: Mutex::default() }
    }

    /// Posts a request and returns the JSON of the response.
    pub async fn post(&self, callee: Callee<'_>, body: String) -> Result<Value, CallError> {
        let url = format!("{}?timeout={}s", callee.endpoint.url(), callee.timeout.as_secs());
        let http = self.http(Pool { bundle: callee.ca_bundle.clone(), endpoints: self.endpoints(&url) })?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(&url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(Body::from(body))
            .map_err(|error| CallError::Url { url: url.clone(), error })?;
        let exchanged = tokio::time::timeout(callee.timeout, exchange(&http, request, callee.answer_bytes_max)).await;
        let (status, body) = match exchanged {
            Ok(Ok(answer)) => answer,
            Ok(Err(why)) => return Err(CallError::Post { url, why }),
            Err(_) => return Err(CallError::TimedOut(url)),
        };
        if !status.is_success() {
            return Err(CallError::Status(refused(status, &body)));
        }
        Ok(serde_json::from_slice(&body)?)
    }

    /// The present endpoints of a Service.
    fn endpoints(&self, url: &str) -> Option<Vec<(String, u16)>> {
        let uri: Uri = url.parse().ok()?;
        resolve::endpoints(&*self.cache, uri.host()?, port_of(&uri))
    }

    fn http(&self, pool: Pool) -> Result<Http, TlsError> {
        let mut pools = self.pools.lock();
        if let Some(http) = pools.get(&pool) {
            return Ok(http.clone());
        }
        let tls = tls::connector(pool.bundle.as_deref(), "caBundle")?;
        let http = pool::pool(&self.cache, tls, DIAL_TIMEOUT);
        if pools.len() == POOLS_MAX {
            pools.clear();
        }
        pools.insert(pool, http.clone());
        Ok(http)
    }
}

/// # Errors
/// The message of the innermost error.
async fn exchange(http: &Http, request: Request<Body>, answer_bytes_max: usize) -> Result<(StatusCode, Bytes), String> {
    let answer = pool::send(http, request).await.map_err(|failure| failure.why)?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), answer_bytes_max).collect().await.map_err(|error| root_cause(&*error))?;
    Ok((status, body.to_bytes()))
}

/// The message of upstream's client for an HTTP status.
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

#[cfg(test)]
mod tests {
    use super::*;
    use api_auth::{Pki, PkiConfig};
    use api_cache::AtRest;

    /// The call waits for its own connection attempt, which ends at its time limit.
    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_good_for_an_endpoint_that_shakes_no_hands() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let client = Client::new(Arc::new(Cache::new(0, AtRest::default())));
        let directory = tempfile::tempdir().expect("a directory");
        let pki = Pki::open(directory.path(), &PkiConfig::for_cluster("cluster.local")).expect("keys");
        let bundle = pki.ca_pem().as_bytes().to_vec();
        let http = client.http(Pool { bundle: Some(bundle), endpoints: None }).expect("a pool");
        let request = Request::get(format!("https://{}/", listener.local_addr().expect("an address"))).body(Body::empty());
        let sent = pool::send(&http, request.expect("a request"));
        let failure = tokio::time::timeout(2 * DIAL_TIMEOUT, sent).await.expect("in time").expect_err("no answer");
        assert!(failure.why.ends_with("i/o timeout"), "{failure:?}");
    }
}
