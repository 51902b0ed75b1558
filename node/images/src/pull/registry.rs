//! One repository of a registry: the OCI distribution protocol over a client of ours. Every answer is bounded in bytes and in
//! time, and error messages contain the registry's own error codes, not the body of whichever server a redirect led to.
//! <https://github.com/opencontainers/distribution-spec/blob/main/spec.md>

use std::time::Duration;

use bytes::BytesMut;
use futures::StreamExt as _;
use http_auth::parse_challenges;
use oci_client::Reference;
use parking_lot::Mutex;
use reqwest::header::{ACCEPT, WWW_AUTHENTICATE};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;

use super::route::{self, Scope};
use crate::blobs::digest_of;
use crate::error::with_causes;
use crate::manifest::ACCEPTED;

/// The longest manifest or index; registries accept no longer one.
pub(super) const MANIFEST_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest token, and longest text of an error.
const TOKEN_BYTES_MAX: usize = 64 * 1024;
/// How long a manifest may take in all, and a token.
const MANIFEST_TIMEOUT: Duration = Duration::from_secs(120);
/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the registry may be silent.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// The characters of a registry's message that an error contains.
const WORDS_LEN_MAX: usize = 512;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegistryError {
    /// Other credentials may be accepted.
    #[error("{0}")]
    Unauthorized(String),
    /// The registry rejected the request, or sent an invalid answer.
    #[error("{0}")]
    Refused(String),
    /// The network failed.
    #[error("{}", with_causes(.0))]
    Network(reqwest::Error),
}

impl From<reqwest::Error> for RegistryError {
    fn from(mut error: reqwest::Error) -> Self {
        if let Some(url) = error.url_mut() {
            *url = bare(url.clone());
        }
        Self::Network(error)
    }
}

/// Someone's user name and password.
#[derive(Clone)]
pub(super) struct Credentials {
    pub(super) username: String,
    pub(super) password: String,
}

/// How requests are authenticated.
#[derive(Clone)]
enum Proof {
    None,
    Basic(Credentials),
    Bearer(String),
}

pub(super) struct Repository {
    http: Client,
    /// `https://host/v2`
    base: String,
    name: String,
    scope: Scope,
    credentials: Option<Credentials>,
    /// A token expires after a few minutes; then a new one is requested.
    proof: Mutex<Proof>,
}

impl Repository {
    /// Connects and finds out how the registry authenticates requests.
    pub(super) async fn open(reference: &Reference, is_plain: bool, credentials: Option<Credentials>) -> Result<Self, RegistryError> {
        let registry = reference.resolve_registry();
        let scope = Scope::new(registry, is_plain);
        let http = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .user_agent(concat!("skiff/", env!("CARGO_PKG_VERSION")))
            .redirect(route::redirects(scope))
            .dns_resolver(route::resolver(registry, scope))
            .build()?;
        let scheme = if is_plain { "http" } else { "https" };
        let base = format!("{scheme}://{registry}/v2");
        let repository = Self { http, base, name: reference.repository().to_owned(), scope, credentials, proof: Mutex::new(Proof::None) };
        hurried(repository.prove()).await?;
        Ok(repository)
    }

    /// The bytes of a manifest and their digest.
    pub(super) async fn manifest(&self, reference: &Reference) -> Result<(Vec<u8>, String), RegistryError> {
        hurried(async {
            let named = reference.digest().or(reference.tag()).unwrap_or("latest");
            let request = self.get(&format!("{}/{}/manifests/{named}", self.base, self.name)).header(ACCEPT, ACCEPTED.join(", "));
            let body = read(accepted(request.send().await?).await?, MANIFEST_BYTES_MAX, "its manifest").await?;
            let digest = digest_of(&body);
            match reference.digest().filter(|wanted| wanted.starts_with("sha256:") && *wanted != digest) {
                None => Ok((body, digest)),
                Some(wanted) => Err(RegistryError::Refused(format!("the registry sent other content than {wanted}"))),
            }
        })
        .await
    }

    /// The answer that carries a blob. Its body is the caller's to bound.
    pub(super) async fn blob(&self, digest: &str) -> Result<Response, RegistryError> {
        let url = format!("{}/{}/blobs/{digest}", self.base, self.name);
        let answer = self.get(&url).send().await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return accepted(answer).await;
        }
        hurried(self.prove()).await?;
        accepted(self.get(&url).send().await?).await
    }

    fn get(&self, url: &str) -> RequestBuilder {
        let request = self.http.get(url);
        match &*self.proof.lock() {
            Proof::None => request,
            Proof::Basic(who) => request.basic_auth(&who.username, Some(&who.password)),
            Proof::Bearer(token) => request.bearer_auth(token),
        }
    }

    /// Chooses the authentication. Only a registry that requests a password gets it.
    async fn prove(&self) -> Result<(), RegistryError> {
        let answer = self.http.get(format!("{}/", self.base)).send().await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(());
        }
        let wants = answer.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let wants: Vec<Challenge> = wants.flat_map(challenges).collect();
        for challenge in wants {
            match (challenge, &self.credentials) {
                (Challenge::Bearer { realm, service }, _) => {
                    let token = self.token(&realm, service.as_deref()).await?;
                    *self.proof.lock() = Proof::Bearer(token);
                    return Ok(());
                }
                (Challenge::Basic, Some(who)) => {
                    *self.proof.lock() = Proof::Basic(who.clone());
                    return Ok(());
                }
                (Challenge::Basic, None) => {}
            }
        }
        Ok(())
    }

    /// <https://distribution.github.io/distribution/spec/auth/token/>
    async fn token(&self, realm: &str, service: Option<&str>) -> Result<String, RegistryError> {
        let refused = |why: String| RegistryError::Refused(format!("asking for a token: {why}"));
        let mut url = Url::parse(realm).map_err(|error| refused(error.to_string()))?;
        route::check(&url, self.scope).map_err(|error| refused(error.to_string()))?;
        url.query_pairs_mut().extend_pairs(service.map(|service| ("service", service)));
        url.query_pairs_mut().append_pair("scope", &format!("repository:{}:pull", self.name));
        let request = self.http.get(url);
        let request = match &self.credentials {
            Some(who) => request.basic_auth(&who.username, Some(&who.password)),
            None => request,
        };
        let answer = request.send().await?;
        let status = answer.status();
        if !status.is_success() {
            return match status {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(RegistryError::Unauthorized(complaint(answer).await)),
                _ => Err(refused(complaint(answer).await)),
            };
        }
        let body = read(answer, TOKEN_BYTES_MAX, "its token").await?;
        let token: Token = serde_json::from_slice(&body).map_err(|_| refused("the answer holds none".to_owned()))?;
        token.token.or(token.access_token).filter(|token| !token.is_empty()).ok_or_else(|| refused("the answer holds none".to_owned()))
    }
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// The authentication that a registry requests.
#[derive(Debug, PartialEq, Eq)]
enum Challenge {
    Bearer { realm: String, service: Option<String> },
    Basic,
}

fn challenges(header: &str) -> Vec<Challenge> {
    let supported = |challenge: http_auth::ChallengeRef<'_>| {
        let value =
            |name: &str| challenge.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_unescaped());
        match challenge.scheme {
            scheme if scheme.eq_ignore_ascii_case("bearer") => {
                Some(Challenge::Bearer { realm: value("realm")?, service: value("service") })
            }
            scheme if scheme.eq_ignore_ascii_case("basic") => Some(Challenge::Basic),
            _ => None,
        }
    };
    parse_challenges(header).unwrap_or_default().into_iter().filter_map(supported).collect()
}

async fn hurried<T>(work: impl Future<Output = Result<T, RegistryError>>) -> Result<T, RegistryError> {
    let done = tokio::time::timeout(MANIFEST_TIMEOUT, work).await;
    done.unwrap_or_else(|_| Err(RegistryError::Refused("the manifest took too long".to_owned())))
}

async fn accepted(answer: Response) -> Result<Response, RegistryError> {
    match answer.status() {
        StatusCode::OK => Ok(answer),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(RegistryError::Unauthorized(complaint(answer).await)),
        _ => Err(RegistryError::Refused(complaint(answer).await)),
    }
}

async fn read(answer: Response, len_max: usize, what: &str) -> Result<Vec<u8>, RegistryError> {
    let mut body = BytesMut::new();
    let mut chunks = answer.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        if body.len() + chunk.len() > len_max {
            return Err(RegistryError::Refused(format!("{what} is longer than {len_max} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.into())
}

/// The form of a registry's errors.
#[derive(Deserialize)]
struct Envelope {
    errors: Vec<OneError>,
}

#[derive(Deserialize)]
struct OneError {
    code: String,
    #[serde(default)]
    message: String,
}

/// A refusal in the words of the registry, if it has some. The body of another server is not shown.
async fn complaint(answer: Response) -> String {
    let (status, url) = (answer.status(), answer.url().clone());
    let body = read(answer, TOKEN_BYTES_MAX, "").await.unwrap_or_default();
    let said = serde_json::from_slice::<Envelope>(&body).map(|envelope| {
        let errors = envelope.errors.into_iter().map(|error| format!("{}: {}", error.code, error.message));
        errors.collect::<Vec<_>>().join(", ")
    });
    let said = said.map_or_else(|_| String::new(), |said| format!(": {said}"));
    let text = format!("unexpected status from GET request to {}: {status}{said}", bare(url));
    text.chars().filter(|one| !one.is_control()).take(WORDS_LEN_MAX).collect()
}

/// Without the query, which may contain a signature.
fn bare(mut url: Url) -> Url {
    url.set_query(None);
    url
}

#[cfg(test)]
mod tests;
