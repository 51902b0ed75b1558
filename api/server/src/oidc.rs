//! The keys of an OpenID Connect provider. A background task finds them by the provider's discovery document, and fetches them
//! again from time to time and when a token names an unknown key.
//!
//! No request waits for the provider. While the provider cannot be reached, the last keys are used; without keys its users are
//! rejected.

use std::sync::Arc;
use std::time::Duration;

use api_auth::{Oidc, OidcConfig, OidcConfigError};
use axum::body::Body;
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use serde::Deserialize;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use api_upstream::tls::{self, TlsError};

/// Pause after a failure: upstream's.
const RETRY: Duration = Duration::from_secs(10);
/// The interval at which keys are fetched again.
const REFRESH: Duration = Duration::from_secs(300);
/// The shortest time between two fetches, however many unknown keys come.
const REFRESH_MIN: Duration = Duration::from_secs(1);
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
const DOCUMENT_BYTES_MAX: usize = 1 << 20;

/// A provider and how to reach it.
#[derive(Clone, Debug)]
pub struct OidcProvider {
    /// What its tokens mean.
    pub config: OidcConfig,
    /// The content of `--oidc-ca-file`; none, this machine's authorities.
    pub ca_pem: Option<String>,
}

/// Why a provider cannot be used at all.
#[derive(Debug, Error)]
pub enum OidcStartError {
    /// Its flags make no sense.
    #[error(transparent)]
    Config(#[from] OidcConfigError),
    /// Its authorities cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Why the provider's keys are not there.
#[derive(Debug, Error)]
enum FetchError {
    #[error("{0:?} is no https URL")]
    Url(String),
    #[error("connecting to {0}")]
    Connect(String, #[source] std::io::Error),
    #[error("asking {0}")]
    Http(String, #[source] hyper::Error),
    #[error("{0} answered {1}")]
    Status(String, StatusCode),
    #[error("reading what {0} answered: {1}")]
    Body(String, String),
    #[error("{0} did not answer in time")]
    TimedOut(String),
    #[error("issuer URL provided to client ({wanted:?}) did not match the issuer URL returned by provider ({found:?})")]
    Issuer { wanted: String, found: String },
    #[error("reading the discovery document")]
    Discovery(#[source] serde_json::Error),
    #[error(transparent)]
    Keys(#[from] OidcConfigError),
}

/// Keeps a provider's keys up to date.
pub(crate) struct Follower {
    oidc: Arc<Oidc>,
    tls: TlsConnector,
    unknown_key: Arc<Notify>,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl Follower {
    /// Nothing is asked before [`Follower::run`].
    pub(crate) fn new(provider: &OidcProvider) -> Result<Self, OidcStartError> {
        let unknown_key = Arc::new(Notify::new());
        let notify = Arc::clone(&unknown_key);
        let oidc = Oidc::new(provider.config.clone(), move || notify.notify_one())?;
        Ok(Self {
            oidc: Arc::new(oidc),
            tls: tls::connector(provider.ca_pem.as_deref().map(str::as_bytes), "--oidc-ca-file")?,
            unknown_key,
        })
    }

    /// What checks the provider's tokens.
    pub(crate) fn oidc(&self) -> Arc<Oidc> {
        Arc::clone(&self.oidc)
    }

    /// Fetches keys until cancelled.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        loop {
            let (pause, wakes) = match cancel.run_until_cancelled(self.refresh()).await {
                None => return,
                Some(Ok(())) => (REFRESH, true),
                Some(Err(error)) => {
                    let source = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(%error, source, "fetching the keys of the OpenID Connect provider failed");
                    (RETRY, false)
                }
            };
            let next = async {
                let unknown = async {
                    tokio::time::sleep(REFRESH_MIN).await;
                    self.unknown_key.notified().await;
                };
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = unknown, if wakes => {}
                }
            };
            if cancel.run_until_cancelled(next).await.is_none() {
                return;
            }
        }
    }

    async fn refresh(&self) -> Result<(), FetchError> {
        let wanted = &self.oidc.config().issuer_url;
        let url = format!("{}/.well-known/openid-configuration", wanted.trim_end_matches('/'));
        let discovery: Discovery = serde_json::from_slice(&self.fetch(&url).await?).map_err(FetchError::Discovery)?;
        if discovery.issuer != *wanted {
            return Err(FetchError::Issuer { wanted: wanted.clone(), found: discovery.issuer });
        }
        self.oidc.set_keys(&self.fetch(&discovery.jwks_uri).await?)?;
        Ok(())
    }

    async fn fetch(&self, url: &str) -> Result<Bytes, FetchError> {
        let fetching = tokio::time::timeout(FETCH_TIMEOUT, self.fetch_unhurried(url)).await;
        fetching.unwrap_or_else(|_| Err(FetchError::TimedOut(url.to_owned())))
    }

    async fn fetch_unhurried(&self, url: &str) -> Result<Bytes, FetchError> {
        let no_url = || FetchError::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| no_url())?;
        let (Some("https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return Err(no_url()) };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(|_| no_url())?;
        let connect = |error| FetchError::Connect(authority.to_string(), error);
        let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(443))).await.map_err(connect)?;
        let stream = self.tls.connect(name, stream).await.map_err(connect)?;
        let failed = |error| FetchError::Http(url.to_owned(), error);
        let (mut sender, connection) = http1::handshake::<_, Body>(TokioIo::new(stream)).await.map_err(failed)?;
        let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let request = Request::builder().uri(path).header(header::HOST, authority.as_str()).header(header::ACCEPT, "application/json");
        let request = request.body(Body::empty()).map_err(|_| no_url())?;
        let answer = async {
            let answer = sender.send_request(request).await.map_err(failed)?;
            if answer.status() != StatusCode::OK {
                return Err(FetchError::Status(url.to_owned(), answer.status()));
            }
            let body = Limited::new(answer.into_body(), DOCUMENT_BYTES_MAX).collect().await;
            body.map(http_body_util::Collected::to_bytes).map_err(|error| FetchError::Body(url.to_owned(), error.to_string()))
        };
        let mut answer = std::pin::pin!(answer);
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            answer = &mut answer => answer,
            ended = &mut connection => match ended {
                Err(error) => Err(failed(error)),
                // What was received before the end is still to be read.
                Ok(()) => answer.await,
            },
        }
    }
}
