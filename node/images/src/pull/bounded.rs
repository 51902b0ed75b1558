//! What a registry sends, within bounds: the library that speaks its protocol takes manifests and blobs of any
//! length.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use futures::StreamExt as _;
use oci_client::errors::{OciDistributionError, OciEnvelope};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference, RegistryOperation};
use reqwest::header::ACCEPT;
use reqwest::{Response, StatusCode};
use tokio::io::AsyncWrite;

use crate::blobs::digest_of;
use crate::manifest::ACCEPTED;

/// Longest manifest or index; registries take none that is longer.
pub(super) const MANIFEST_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How long a manifest may take in all.
const MANIFEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Fetches manifests of one registry.
pub(super) struct Manifests<'c> {
    /// Knows how to prove who asks.
    pub(super) client: &'c Client,
    pub(super) http: reqwest::Client,
    /// `http` or `https`.
    pub(super) scheme: &'static str,
    pub(super) auth: &'c RegistryAuth,
}

impl Manifests<'_> {
    /// The bytes of a manifest and their digest.
    pub(super) async fn fetch(&self, reference: &Reference) -> Result<(Vec<u8>, String), OciDistributionError> {
        let fetched = tokio::time::timeout(MANIFEST_TIMEOUT, self.fetch_unhurried(reference)).await;
        fetched.unwrap_or_else(|_| Err(OciDistributionError::SpecViolationError("the manifest took too long".to_owned())))
    }

    async fn fetch_unhurried(&self, reference: &Reference) -> Result<(Vec<u8>, String), OciDistributionError> {
        let token = self.client.auth(reference, self.auth, RegistryOperation::Pull).await?;
        let named = reference.digest().or(reference.tag()).unwrap_or("latest");
        let (registry, repository) = (reference.resolve_registry(), reference.repository());
        let url = format!("{}://{registry}/v2/{repository}/manifests/{named}", self.scheme);
        let asked = || self.http.get(&url).header(ACCEPT, ACCEPTED.join(", "));
        let mut response = match &token {
            Some(token) => asked().bearer_auth(token).send().await?,
            None => asked().send().await?,
        };
        // Only a registry that wants a password is shown it.
        if let (StatusCode::UNAUTHORIZED, None, RegistryAuth::Basic(user, password)) = (response.status(), &token, self.auth) {
            response = asked().basic_auth(user, Some(password)).send().await?;
        }
        let status = response.status();
        let body = read(response).await?;
        if status != StatusCode::OK {
            return Err(refused(status, &body, url));
        }
        let digest = digest_of(&body);
        match reference.digest().filter(|wanted| wanted.starts_with("sha256:") && *wanted != digest) {
            None => Ok((body, digest)),
            Some(wanted) => Err(OciDistributionError::SpecViolationError(format!("the registry sent other content than {wanted}"))),
        }
    }
}

async fn read(response: Response) -> Result<Vec<u8>, OciDistributionError> {
    let mut body = BytesMut::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        if body.len() + chunk.len() > MANIFEST_BYTES_MAX {
            return Err(OciDistributionError::SpecViolationError(format!("its manifest is longer than {MANIFEST_BYTES_MAX} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.into())
}

/// A refusal in the words of the registry, where it has some.
fn refused(status: StatusCode, body: &[u8], url: String) -> OciDistributionError {
    if status == StatusCode::UNAUTHORIZED {
        return OciDistributionError::UnauthorizedError { url };
    }
    match serde_json::from_slice::<OciEnvelope>(body) {
        Ok(envelope) if status.is_client_error() => OciDistributionError::RegistryError { envelope, url },
        _ => {
            let message = String::from_utf8_lossy(body.get(..MESSAGE_LEN_MAX).unwrap_or(body)).into_owned();
            OciDistributionError::ServerError { code: status.as_u16(), url, message }
        }
    }
}

/// What of a refusal without form is told.
const MESSAGE_LEN_MAX: usize = 1_024;

/// A file that takes no more than it is to be long.
pub(super) struct AtMost<W> {
    to: W,
    left: u64,
}

impl<W> AtMost<W> {
    pub(super) fn new(to: W, len: u64) -> Self {
        Self { to, left: len }
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for AtMost<W> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if u64::try_from(bytes.len()).is_ok_and(|len| len > self.left) {
            let why = "the registry sends more than the manifest says";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::FileTooLarge, why)));
        }
        let written = ready!(Pin::new(&mut self.to).poll_write(context, bytes))?;
        self.left = self.left.saturating_sub(u64::try_from(written).unwrap_or(u64::MAX));
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.to).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.to).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A registry that answers everything so, for ever if it can.
    async fn registry(head: &'static str, chunk: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut asked = [0; 4_096];
                    let read = stream.read(&mut asked).await.expect("a request");
                    let is_version = asked[..read].starts_with(b"GET /v2/ ");
                    let head = if is_version { "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n" } else { head };
                    let mut sent = stream.write_all(head.as_bytes()).await;
                    while !is_version && sent.is_ok() && !chunk.is_empty() {
                        sent = stream.write_all(chunk).await;
                    }
                });
            }
        });
        address.to_string()
    }

    async fn fetched(registry: &str) -> Result<usize, String> {
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let client = Client::new(oci_client::client::ClientConfig {
            protocol: oci_client::client::ClientProtocol::Http,
            ..oci_client::client::ClientConfig::default()
        });
        let manifests = Manifests { client: &client, http: reqwest::Client::new(), scheme: "http", auth: &RegistryAuth::Anonymous };
        let reference: Reference = format!("{registry}/image:latest").parse().expect("a reference");
        manifests.fetch(&reference).await.map(|(body, _)| body.len()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_manifest_without_end_is_broken_off() {
        let endless = registry("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n", &[b' '; 65_536]).await;
        let why = fetched(&endless).await.expect_err("too long");
        assert!(why.contains("longer than 4194304 bytes"), "{why}");
        let refusing = registry("HTTP/1.1 500 Oh\r\nconnection: close\r\n\r\n", &[b'x'; 65_536]).await;
        assert!(fetched(&refusing).await.is_err());
        let short = registry("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}", &[]).await;
        assert_eq!(fetched(&short).await, Ok(2));
        let unknown = registry("HTTP/1.1 404 No\r\nconnection: close\r\ncontent-length: 5\r\n\r\nsorry", &[]).await;
        let why = fetched(&unknown).await.expect_err("not there");
        assert!(why.contains("404") && why.contains("sorry"), "{why}");
    }

    #[tokio::test]
    async fn a_blob_is_no_longer_than_it_says() {
        let mut to = AtMost::new(Vec::new(), 5);
        to.write_all(b"hello").await.expect("fits");
        assert!(to.write_all(b"!").await.is_err());
        assert_eq!(to.to, b"hello");
    }
}
