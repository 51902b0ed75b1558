//! Connections to whoever answers for the server: HTTP/1.1 over TCP, with TLS or without.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::app::App;
use crate::serve::idle;

/// Who does not answer within this time is unreachable.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A host, by address or name, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// `host:port`, an IPv6 address in brackets.
    pub(super) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// TLS, and the name that the other side's certificate is to bear.
type Tls<'t> = (&'t TlsConnector, &'t str);

/// TLS over TCP.
pub(super) type Secure = TlsStream<TcpStream>;

/// Connects, and says in words why it could not.
pub(crate) async fn connect(app: &Arc<App>, to: &Address, tls: Option<Tls<'_>>) -> Result<http1::SendRequest<Body>, String> {
    match tls {
        None => speak(app, in_time(to, CONNECT_TIMEOUT, dial(to)).await?).await,
        Some(tls) => speak(app, secure(to, tls, CONNECT_TIMEOUT).await?).await,
    }
}

/// Connects and authenticates within a time.
pub(super) async fn secure(to: &Address, (tls, name): Tls<'_>, limit: Duration) -> Result<Secure, String> {
    let shaking_hands = async {
        let stream = dial(to).await?;
        let name = ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
        tls.connect(name, stream).await.map_err(|error| error.to_string())
    };
    in_time(to, limit, shaking_hands).await
}

async fn in_time<T>(to: &Address, limit: Duration, connecting: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let connected = tokio::time::timeout(limit, connecting).await;
    connected.unwrap_or_else(|_| Err(format!("dial tcp {}: i/o timeout", to.authority())))
}

async fn dial(to: &Address) -> Result<TcpStream, String> {
    let stream = TcpStream::connect((to.host.as_str(), to.port)).await.map_err(|error| dialling(to, &error))?;
    if let Err(error) = stream.set_nodelay(true).and_then(|()| idle::probe(&stream)) {
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
pub(super) async fn speak<T>(app: &Arc<App>, stream: T) -> Result<http1::SendRequest<Body>, String>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let shutdown = app.shutdown.clone();
    app.tasks.spawn(async move {
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
        let stream = dial(&to).await.expect("connected");
        let socket = SockRef::from(&stream);
        assert_eq!(socket.keepalive().ok(), Some(true));
        assert_eq!(socket.tcp_user_timeout().ok(), Some(None), "the other end of a tunnel may take its time to read");
    }
}
