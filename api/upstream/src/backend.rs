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

/// Why there is no connection.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Nobody is to be led there. Upstream's words.
    #[error("address not allowed")]
    NotAllowed,
    /// There was an attempt.
    #[error("{0}")]
    Failed(String),
}

impl From<String> for ConnectError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
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
    let speaking = match tls {
        None => speak(driver, in_time(to, CONNECT_TIMEOUT, dial(to, Some(within))).await?).await,
        Some(tls) => speak(driver, in_time(to, CONNECT_TIMEOUT, shake_hands(to, Some(within), tls)).await?).await,
    };
    Ok(speaking?)
}

/// Connects and authenticates within a time, to where an administrator's word leads.
pub async fn secure(to: &Address, tls: Tls<'_>, limit: Duration) -> Result<Secure, String> {
    in_time(to, limit, shake_hands(to, None, tls)).await.map_err(|error| error.to_string())
}

async fn shake_hands(to: &Address, within: Option<&Proxyable>, tls: Tls<'_>) -> Result<Secure, ConnectError> {
    let stream = dial(to, within).await?;
    let name = ServerName::try_from(tls.name.to_owned()).map_err(|error| error.to_string())?;
    let stream = tls.connector.connect(name, stream).await.map_err(|error| error.to_string())?;
    if let Some(wanted) = tls.subject {
        check_subject(&stream, wanted)?;
    }
    Ok(stream)
}

/// That a certificate is good for an address does not make its owner whom the connection is for.
fn check_subject(stream: &Secure, wanted: &str) -> Result<(), String> {
    let leaf = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let info = leaf.and_then(|leaf| api_auth::pki::read_certificate_der(leaf).ok());
    let found = info.map(|info| info.common_name).unwrap_or_default();
    if found == wanted { Ok(()) } else { Err(format!("tls: certificate is for {found:?}, not {wanted:?}")) }
}

async fn in_time<T>(to: &Address, limit: Duration, connecting: impl Future<Output = Result<T, ConnectError>>) -> Result<T, ConnectError> {
    let connected = tokio::time::timeout(limit, connecting).await;
    connected.unwrap_or_else(|_| Err(ConnectError::Failed(format!("dial tcp {}: i/o timeout", to.authority()))))
}

/// Connects to one of the addresses that a host stands for, if all of them are allowed.
async fn dial(to: &Address, within: Option<&Proxyable>) -> Result<TcpStream, ConnectError> {
    let failed = |error: std::io::Error| dialling(to, &error);
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
fn dialling(to: &Address, error: &std::io::Error) -> String {
    let why = match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        std::io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        std::io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        _ => error.to_string(),
    };
    format!("dial tcp {}: {why}", to.authority())
}

/// Speaks HTTP/1.1 over a connection, beside what is asked over it.
pub async fn speak<T>(driver: &Driver, stream: T) -> Result<http1::SendRequest<Body>, String>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
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
