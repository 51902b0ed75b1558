//! The HTTP client of an extender: one POST and its answer, with limits of time and size. It follows no redirects and tries nothing
//! again. Connections are pooled. Certificates and keys from files are read again while the scheduler runs.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::client::Body;
use thiserror::Error as ThisError;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::config;
use crate::config::TlsConfig;
use crate::metrics;

/// Bytes of an answer beside what it may repeat of the request.
const ANSWER_BYTES_MAX: usize = 2 << 20;
/// The highest number of characters of an extender's own message.
pub(super) const MESSAGE_LEN_MAX: usize = 512;
/// Files are read again when they were last read so long ago.
const FILES_PERIOD: Duration = Duration::from_secs(60);

/// Why a call of an extender failed. The messages are upstream's and those of Go's client, where it has one.
#[derive(Debug, ThisError)]
pub(crate) enum CallError {
    /// The certificates, the key or the URL cannot be used any more.
    #[error("Post {url:?}")]
    Client {
        /// The URL.
        url: String,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The extender could not be reached, or the connection ended.
    #[error("Post {url:?}: {why}")]
    Post {
        /// The URL.
        url: String,
        /// The innermost error.
        why: String,
    },
    /// The answer did not arrive in time.
    #[error("Post {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)")]
    TimedOut {
        /// The URL.
        url: String,
    },
    /// The answer is too large.
    #[error("Post {url:?}: the answer has more than {limit} bytes")]
    TooLarge {
        /// The URL.
        url: String,
        /// The highest number of bytes.
        limit: usize,
    },
    /// The status of the answer is not 200. A redirect is none.
    #[error("failed {verb} with extender at URL {url}, code {code}")]
    Status {
        /// The verb.
        verb: String,
        /// The URL.
        url: String,
        /// The status.
        code: u16,
    },
    /// The answer is not what the verb answers.
    #[error("the answer of the extender at URL {url} cannot be decoded")]
    Garbage {
        /// The URL.
        url: String,
        /// Why.
        source: serde_json::Error,
    },
    /// The extender allows a node that it was not sent.
    #[error("extender {extender:?} claims a filtered node {node:?} which is not found in the input node list")]
    UnknownNode {
        /// The extender.
        extender: String,
        /// The node.
        node: String,
    },
    /// The extender's own error.
    #[error("{0}")]
    Refused(String),
    /// The extender chose victims that it may not choose.
    #[error("extender {extender:?} claims to preempt {what}")]
    Victims {
        /// The extender.
        extender: String,
        /// Which, and why not.
        what: String,
    },
    /// The extender chose no victims on a node that it left.
    #[error("expected at least one victim pod on node {0:?}")]
    NoVictims(String),
}

impl CallError {
    /// The extender answered with this message.
    pub fn refused(message: &str) -> Self {
        Self::Refused(shortened(message))
    }
}

/// A message of an extender, which may have any length.
pub(super) fn shortened(message: &str) -> String {
    message.chars().take(MESSAGE_LEN_MAX).collect()
}

/// The pooled connections to an extender.
pub(super) struct Connection {
    config: config::Extender,
    client: Mutex<Option<Ready>>,
}

/// A client, and when the files of its certificates were read.
struct Ready {
    client: kube::Client,
    read: Instant,
}

impl Connection {
    /// Connects with the first call.
    pub fn new(config: &config::Extender) -> Self {
        Self { config: config.clone(), client: Mutex::new(None) }
    }

    /// Posts a body to the verb's URL and returns the body of the answer.
    pub async fn post(&self, verb: &str, body: Bytes) -> Result<Bytes, CallError> {
        let url = self.config.url(verb);
        let started = Instant::now();
        let answer = match timeout(self.config.http_timeout, self.exchange(verb, &url, body)).await {
            Ok(answer) => answer,
            Err(_) => Err(CallError::TimedOut { url }),
        };
        metrics::extender_called(&self.config.name, verb, answer.is_ok(), started.elapsed());
        answer
    }

    async fn exchange(&self, verb: &str, url: &str, body: Bytes) -> Result<Bytes, CallError> {
        let limit = ANSWER_BYTES_MAX + 2 * body.len();
        let post = |why: String| CallError::Post { url: url.to_owned(), why };
        let client = |source: Box<dyn Error + Send + Sync>| CallError::Client { url: url.to_owned(), source };
        let uri: Uri = url.parse().map_err(|error: http::uri::InvalidUri| client(error.into()))?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(uri.path_and_query().map_or("/", |path| path.as_str()))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(Vec::from(body)))
            .map_err(|error| client(error.into()))?;
        let answer = self.client(&uri).await.map_err(client)?.send(request).await.map_err(|error| post(root_cause(&error)))?;
        if answer.status() != StatusCode::OK {
            return Err(CallError::Status { verb: verb.to_owned(), url: url.to_owned(), code: answer.status().as_u16() });
        }
        match Limited::new(answer.into_body(), limit).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(CallError::TooLarge { url: url.to_owned(), limit }),
            Err(error) => Err(post(root_cause(error.as_ref()))),
        }
    }

    /// The client, with the present contents of the files.
    async fn client(&self, url: &Uri) -> Result<kube::Client, Box<dyn Error + Send + Sync>> {
        let mut ready = self.client.lock().await;
        let is_old = |ready: &Ready| self.config.tls.has_files() && ready.read.elapsed() >= FILES_PERIOD;
        if let Some(present) = ready.as_ref().filter(|ready| !is_old(ready)) {
            return Ok(present.client.clone());
        }
        let root = Uri::builder().scheme(url.scheme_str().unwrap_or("http")).authority(url.authority().map_or("", |one| one.as_str()));
        let root = root.path_and_query("/").build()?;
        let (tls, limit): (TlsConfig, Duration) = (self.config.tls.clone(), self.config.http_timeout);
        let config = api_tasks::blocking("scheduler/extender-certificates", move || tls.client_config(&root, limit)).await?;
        let client = match (config, ready.as_ref()) {
            (Ok(config), _) => kube::Client::try_from(config)?,
            // The files may be in the middle of a change.
            (Err(error), Some(present)) => {
                tracing::warn!(extender = self.config.name, error = api_client::error::chain(&error), "certificates not read again");
                present.client.clone()
            }
            (Err(error), None) => return Err(error.into()),
        };
        *ready = Some(Ready { client: client.clone(), read: Instant::now() });
        Ok(client)
    }
}

/// The innermost error, for example `connection refused`.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::KubeSchedulerConfiguration;

    #[tokio::test(start_paused = true)]
    async fn certificates_from_files_are_read_again_and_stay_while_they_are_unreadable() {
        let dir = tempfile::tempdir().expect("a directory");
        let authority = dir.path().join("ca");
        let pem = || rcgen::generate_simple_self_signed(["a".to_owned()]).expect("a certificate").cert.pem();
        std::fs::write(&authority, pem()).expect("a file");
        let extender = json!({"urlPrefix": "https://a", "tlsConfig": {"caFile": authority}});
        let file = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "extenders": [extender]});
        let configuration = KubeSchedulerConfiguration::parse(&file.to_string()).expect("valid");
        let (connection, url) = (Connection::new(&configuration.extenders[0]), Uri::from_static("https://a/filter"));
        let read = async || {
            connection.client(&url).await.expect("a client");
            connection.client.lock().await.as_ref().map(|ready| ready.read)
        };
        let first = read().await;
        assert_eq!(read().await, first);
        std::fs::write(&authority, "garbage").expect("a file");
        tokio::time::advance(FILES_PERIOD).await;
        let second = read().await;
        assert_ne!(second, first, "the client of before is used");
        assert!(Connection::new(&configuration.extenders[0]).client(&url).await.is_err(), "there is none of before");
        std::fs::write(&authority, pem()).expect("a file");
        tokio::time::advance(FILES_PERIOD).await;
        assert_ne!(read().await, second);
    }
}
