//! Connections to whoever answers for the server: HTTP/1.1 over TCP, with TLS or without.

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

/// Who does not answer within this time is unreachable.
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
    /// `host:port`, an IPv6 address in brackets.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// What TLS is made with.
#[derive(Clone, Copy)]
pub struct Tls<'t> {
    /// The authorities that are trusted and the certificate that is presented.
    pub connector: &'t TlsConnector,
    /// The name or address that the other side's certificate is to be good for.
    pub name: &'t str,
    /// The subject that the certificate is to have; none, any.
    pub subject: Option<&'t str>,
}

/// Why there is no connection. The messages are upstream's, or Go's, where people search for them.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Clients may not be led to this address.
    #[error("address not allowed")]
    NotAllowed,
    /// The host is a Service that does not exist, or that leads nowhere.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The authorities or the certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No TCP connection came about.
    #[error("dial tcp {address}: {}", dialling(error))]
    Dial {
        /// Host and port.
        address: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// No connection came about in time.
    #[error("dial tcp {0}: i/o timeout")]
    TimedOut(String),
    /// The host's name cannot stand in a certificate.
    #[error(transparent)]
    Name(#[from] rustls_pki_types::InvalidDnsNameError),
    /// The TLS handshake failed.
    #[error(transparent)]
    Handshake(std::io::Error),
    /// The certificate is valid for the address, but belongs to somebody else.
    #[error("tls: certificate is for {found:?}, not {wanted:?}")]
    Subject {
        /// The name in the certificate.
        found: String,
        /// The name that the connection is for.
        wanted: String,
    },
    /// The other end does not speak HTTP.
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

/// TLS over TCP.
pub type Secure = TlsStream<TcpStream>;

/// Connects where that is allowed.
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

/// Connects and authenticates within a time, to where an administrator's word leads.
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

/// That a certificate is good for an address does not make its owner whom the connection is for.
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

/// Connects to one of the addresses that a host stands for, if all of them are allowed.
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

/// An error of connecting, in the words that people search for.
fn dialling(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        std::io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        std::io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        _ => error.to_string(),
    }
}

/// Speaks HTTP/1.1 over a connection, beside what is asked over it.
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
