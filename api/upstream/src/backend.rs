//! Connections to the servers behind the API server: HTTP/1.1 over TCP, with TLS or without.

use std::net::SocketAddr;
use std::time::Duration;

use api_tasks::Tasks;
use axum::body::Body;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::keepalive;
use crate::proxyable::Proxyable;
use crate::resolve::ResolveError;
use crate::tls::TlsError;

/// A peer that does not answer within this time is unreachable.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Drives connections in the background until the server stops.
#[derive(Clone)]
pub struct Driver {
    /// The tasks of the server.
    pub tasks: Tasks,
    /// Ends every connection.
    pub shutdown: CancellationToken,
}

/// A host, by address or name, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address or name.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Address {
    /// `host:port`; an IPv6 address stands in brackets.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// The parameters of TLS.
#[derive(Clone, Copy)]
pub struct Tls<'t> {
    /// The connector with the trusted authorities and the client certificate.
    pub connector: &'t TlsConnector,
    /// The name or address for which the peer's certificate must be valid.
    pub name: &'t str,
    /// The common name that the peer's certificate must have; `None` allows any.
    pub subject: Option<&'t str>,
}

/// Why a connection failed. The messages are those of upstream or Go, so that users can search for them.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address is not allowed for clients.
    #[error("address not allowed")]
    NotAllowed,
    /// The host is a Service that does not exist or has no endpoints.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The authorities or the certificate are unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The TCP connection failed.
    #[error("dial tcp {address}: {}", dialling(error))]
    Dial {
        /// Host and port.
        address: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// The connection was not established in time.
    #[error("dial tcp {0}: i/o timeout")]
    TimedOut(String),
    /// The host is no valid name for a certificate.
    #[error(transparent)]
    Name(#[from] rustls_pki_types::InvalidDnsNameError),
    /// The TLS handshake failed.
    #[error(transparent)]
    Handshake(std::io::Error),
    /// The certificate is valid for the address, but has another common name.
    #[error("tls: certificate is for {found:?}, not {wanted:?}")]
    Subject {
        /// The name in the certificate.
        found: String,
        /// The required name.
        wanted: String,
    },
    /// The peer does not speak HTTP.
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

/// A TLS connection over TCP.
pub type Secure = TlsStream<TcpStream>;

/// Connects to an address that the limits allow.
pub async fn connect(
    driver: &Driver,
    to: &Address,
    within: &Proxyable,
    tls: Option<Tls<'_>>,
) -> Result<http1::SendRequest<Body>, ConnectError> {
    match tls {
        None => speak(driver, in_time(to, CONNECT_TIMEOUT, dial(to, Some(within))).await?).await,
        Some(tls) => speak(driver, in_time(to, CONNECT_TIMEOUT, shake_hands(to, Some(within), tls)).await?).await,
    }
}

/// Connects and does the TLS handshake within a time limit. The address comes from an administrator, so it has no
/// limits.
pub async fn secure(to: &Address, tls: Tls<'_>, limit: Duration) -> Result<Secure, ConnectError> {
    in_time(to, limit, shake_hands(to, None, tls)).await
}

async fn shake_hands(to: &Address, within: Option<&Proxyable>, tls: Tls<'_>) -> Result<Secure, ConnectError> {
    let stream = dial(to, within).await?;
    let name = ServerName::try_from(tls.name.to_owned())?;
    let stream = tls.connector.connect(name, stream).await.map_err(ConnectError::Handshake)?;
    if let Some(wanted) = tls.subject {
        check_subject(&stream, wanted)?;
    }
    Ok(stream)
}

/// Checks the common name. A certificate may be valid for the address and still belong to another subject.
fn check_subject(stream: &Secure, wanted: &str) -> Result<(), ConnectError> {
    let leaf = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let info = leaf.and_then(|leaf| api_auth::pki::read_certificate_der(leaf).ok());
    let found = info.map(|info| info.common_name).unwrap_or_default();
    if found == wanted { Ok(()) } else { Err(ConnectError::Subject { found, wanted: wanted.to_owned() }) }
}

async fn in_time<T>(to: &Address, limit: Duration, connecting: impl Future<Output = Result<T, ConnectError>>) -> Result<T, ConnectError> {
    let connected = tokio::time::timeout(limit, connecting).await;
    connected.unwrap_or_else(|_| Err(ConnectError::TimedOut(to.authority())))
}

/// Connects to one of the addresses of a host, if all of them are allowed.
async fn dial(to: &Address, within: Option<&Proxyable>) -> Result<TcpStream, ConnectError> {
    let failed = |error| ConnectError::Dial { address: to.authority(), error };
    let found: Vec<SocketAddr> = tokio::net::lookup_host((to.host.as_str(), to.port)).await.map_err(failed)?.collect();
    if within.is_some_and(|within| !found.iter().all(|address| within.allows(*address))) {
        return Err(ConnectError::NotAllowed);
    }
    let stream = TcpStream::connect(found.as_slice()).await.map_err(failed)?;
    if let Err(error) = stream.set_nodelay(true).and_then(|()| keepalive::probe(&stream)) {
        tracing::debug!(%error, "setting a connection's options failed");
    }
    Ok(stream)
}

/// The message of a connection error, in Go's words.
fn dialling(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        std::io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        std::io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        _ => error.to_string(),
    }
}

/// Starts HTTP/1.1 on a connection and drives it in the background.
pub async fn speak<T>(driver: &Driver, stream: T) -> Result<http1::SendRequest<Body>, ConnectError>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let shutdown = driver.shutdown.clone();
    driver.tasks.request("api-server/backend", async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            ended = connection.with_upgrades() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "the connection to a backend ended");
                }
            }
        }
    });
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use socket2::SockRef;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_system_looks_whether_a_backend_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let to = Address { host: "127.0.0.1".to_owned(), port: listener.local_addr().expect("an address").port() };
        let stream = dial(&to, None).await.expect("connected");
        let socket = SockRef::from(&stream);
        assert_eq!(socket.keepalive().ok(), Some(true));
        assert_eq!(socket.tcp_user_timeout().ok(), Some(None), "the other end of a tunnel may take its time to read");
    }
}
