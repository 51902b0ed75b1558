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

/// TLS over TCP. It is wrapped once more than it needs to be, as hyper-rustls has it.
pub(super) type Secure = TlsStream<TokioIo<TokioIo<TcpStream>>>;

/// Connects, and says in words why it could not.
pub(crate) async fn connect(app: &Arc<App>, to: &Address, tls: Option<Tls<'_>>) -> Result<http1::SendRequest<Body>, String> {
    match tls {
        None => speak(app, in_time(to, Some(CONNECT_TIMEOUT), dial(to)).await?).await,
        Some(tls) => speak(app, secure(to, tls, Some(CONNECT_TIMEOUT)).await?).await,
    }
}

/// Connects and authenticates, within a time where one is given.
pub(super) async fn secure(to: &Address, (tls, name): Tls<'_>, limit: Option<Duration>) -> Result<Secure, String> {
    let shaking_hands = async {
        let stream = dial(to).await?;
        let name = ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
        tls.connect(name, TokioIo::new(TokioIo::new(stream))).await.map_err(|error| error.to_string())
    };
    in_time(to, limit, shaking_hands).await
}

async fn in_time<T>(to: &Address, limit: Option<Duration>, connecting: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let Some(limit) = limit else { return connecting.await };
    let connected = tokio::time::timeout(limit, connecting).await;
    connected.unwrap_or_else(|_| Err(format!("dial tcp {}: i/o timeout", to.authority())))
}

async fn dial(to: &Address) -> Result<TcpStream, String> {
    let stream = TcpStream::connect((to.host.as_str(), to.port)).await.map_err(|error| dialling(to, &error))?;
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "setting TCP_NODELAY failed");
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
