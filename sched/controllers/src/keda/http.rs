//! Requests to addresses that users write. Each is bounded in time and size, goes to a checked address, follows no redirect and
//! uses no proxy.
//!
//! What the server sends is never repeated to the user: an error has the status or the kind of the failure alone, so that a
//! trigger is no way to read what only this process reaches.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api_tls::AnyCertificate;
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;

use super::address::{AddressError, Addresses};

/// Upstream's `KEDA_HTTP_DEFAULT_TIMEOUT`: from the search for the address to the last byte.
const TIMEOUT: Duration = Duration::from_secs(3);
/// A trigger may ask for more time, up to this.
const TIMEOUT_MAX: Duration = Duration::from_secs(30);
/// The largest body of an answer.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Headers that decide where a request goes or where it ends.
const RESERVED: [&str; 6] = ["host", "connection", "content-length", "transfer-encoding", "upgrade", "te"];

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum HttpError {
    /// The URL cannot be parsed.
    #[error("invalid URL")]
    Url,
    /// The URL leads nowhere.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The credentials for TLS are invalid.
    #[error("error creating the TLS config: {0}")]
    Tls(&'static str),
    /// A header cannot be sent. Its name may come from a Secret, as its value does.
    #[error("a header has an invalid name or value, or is one of {RESERVED:?}")]
    Header,
    /// The time is over.
    #[error("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")]
    Timeout,
    /// The body is too large.
    #[error("the answer is larger than {BODY_BYTES_MAX} bytes")]
    TooLarge,
    /// The connection failed.
    #[error("{0}")]
    Network(&'static str),
}

/// Credentials of a TLS connection, in PEM.
#[derive(Default)]
pub struct ClientTls {
    /// Certificate and key.
    pub client: Option<(String, String)>,
    /// The authority of the server's certificate.
    pub authority: Option<String>,
}

/// A GET request.
pub struct Request {
    url: Url,
    headers: Vec<(String, String)>,
    basic: Option<(String, String)>,
    /// Credentials of the connection.
    pub tls: ClientTls,
    /// Whether the server's certificate counts without an authority.
    pub unsafe_ssl: bool,
    timeout: Duration,
}

/// An answer.
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// A request for a URL.
    pub fn get(url: &str) -> Result<Self, HttpError> {
        let url = Url::parse(url).map_err(|_| HttpError::Url)?;
        Ok(Self { url, headers: Vec::new(), basic: None, tls: ClientTls::default(), unsafe_ssl: false, timeout: TIMEOUT })
    }

    /// Adds a header.
    pub fn header(&mut self, name: &str, value: String) {
        self.headers.push((name.to_owned(), value));
    }

    /// Adds a name and a password.
    pub fn basic_auth(&mut self, name: &str, password: &str) {
        self.basic = Some((name.to_owned(), password.to_owned()));
    }

    /// Adds a parameter of the query.
    pub fn query(&mut self, name: &str, value: &str) {
        self.url.query_pairs_mut().append_pair(name, value);
    }

    /// Another limit of the time.
    pub fn timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout.filter(|timeout| !timeout.is_zero()).unwrap_or(TIMEOUT).min(TIMEOUT_MAX);
    }
}

/// Sends requests.
pub struct Http {
    addresses: Addresses,
    /// The authorities of the machine.
    roots: OnceLock<Arc<RootCertStore>>,
}

impl Http {
    /// Sends requests to these addresses.
    pub fn new(addresses: Addresses) -> Self {
        Self { addresses, roots: OnceLock::new() }
    }

    /// Sends a request, and reads the answer.
    pub async fn send(&self, request: Request) -> Result<Answer, HttpError> {
        let timeout = request.timeout;
        tokio::time::timeout(timeout, self.exchange(request)).await.map_err(|_| HttpError::Timeout)?
    }

    async fn exchange(&self, request: Request) -> Result<Answer, HttpError> {
        let route = self.addresses.route(&request.url).await?;
        let tls = self.tls(&request)?;
        let client = client(&request.url, &route.addresses, tls)?;
        let mut response = message(&client, request, &route.addresses)?.send().await.map_err(|error| network(&error))?;
        let status = response.status().as_u16();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| network(&error))? {
            if body.len().saturating_add(chunk.len()) > BODY_BYTES_MAX {
                return Err(HttpError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { status, body })
    }

    fn tls(&self, request: &Request) -> Result<ClientConfig, HttpError> {
        let ClientTls { client, authority } = &request.tls;
        let config = ClientConfig::builder_with_provider(api_tls::provider());
        let config = config.with_safe_default_protocol_versions().map_err(|_| HttpError::Tls("no protocol versions"))?;
        let config = if request.unsafe_ssl {
            config.dangerous().with_custom_certificate_verifier(AnyCertificate::verifier())
        } else {
            config.with_root_certificates(self.authorities(authority.as_deref())?)
        };
        let Some((certificate, key)) = client else { return Ok(config.with_no_client_auth()) };
        let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
        let chain = chain.map_err(|_| HttpError::Tls("the certificate is no PEM"))?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| HttpError::Tls("the key is no PEM"))?;
        config.with_client_auth_cert(chain, key).map_err(|_| HttpError::Tls("certificate and key do not fit"))
    }

    fn authorities(&self, authority: Option<&str>) -> Result<Arc<RootCertStore>, HttpError> {
        let machine = self.roots.get_or_init(|| {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            Arc::new(roots)
        });
        let Some(authority) = authority else { return Ok(Arc::clone(machine)) };
        let mut roots = RootCertStore::clone(machine);
        for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
            let certificate = certificate.map_err(|_| HttpError::Tls("the authority is no PEM"))?;
            roots.add(certificate).map_err(|_| HttpError::Tls("the authority is invalid"))?;
        }
        Ok(Arc::new(roots))
    }
}

/// A client that connects to these addresses alone.
fn client(url: &Url, addresses: &[SocketAddr], tls: ClientConfig) -> Result<Client, HttpError> {
    let builder = Client::builder().redirect(Policy::none()).no_proxy().http1_only().tls_backend_preconfigured(tls);
    let builder = builder.resolve_to_addrs(url.host_str().unwrap_or_default(), addresses);
    builder.build().map_err(|_| HttpError::Network("the client cannot be set up"))
}

/// The request with the port of its endpoints; the header `Host` has what the user wrote.
fn message(client: &Client, request: Request, addresses: &[SocketAddr]) -> Result<reqwest::RequestBuilder, HttpError> {
    let Request { mut url, headers, basic, .. } = request;
    let host = url.host_str().unwrap_or_default();
    let authority = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    if let Some(address) = addresses.first() {
        url.set_port(Some(address.port())).map_err(|()| HttpError::Url)?;
    }
    let mut message = client.get(url).header(http::header::HOST, authority);
    if let Some((name, password)) = basic {
        message = message.basic_auth(name, Some(password));
    }
    for (name, value) in headers {
        if RESERVED.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(HttpError::Header);
        }
        let parsed = http::HeaderName::try_from(&name).ok().zip(http::HeaderValue::try_from(&value).ok());
        let (header, mut value) = parsed.ok_or(HttpError::Header)?;
        value.set_sensitive(true);
        message = message.header(header, value);
    }
    Ok(message)
}

/// The kind of a failure. The text of the error itself may contain the URL, and with it a key.
fn network(error: &reqwest::Error) -> HttpError {
    if error.is_timeout() {
        HttpError::Timeout
    } else if error.is_connect() {
        HttpError::Network("the connection failed")
    } else {
        HttpError::Network("the connection broke")
    }
}
