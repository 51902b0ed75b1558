//! A pooled connection. It records whether it ended between a request and the first byte of its response.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::backend::Secure;
use crate::keepalive;

/// A connection ends when the server does not acknowledge data for this time. Only pooled connections have this limit:
/// the peer of a tunnel may take its time to read.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);

/// A pooled connection.
pub struct Reused {
    stream: Secure,
    has_heard: bool,
    is_unheard: Unheard,
}

/// Whether a request was sent over a reused connection, and no byte of the response was read since. A connection counts
/// as reused when it has received bytes before.
#[derive(Clone, Debug, Default)]
pub struct Unheard(Arc<AtomicBool>);

impl Unheard {
    /// The current value.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn set(&self, is_unheard: bool) {
        self.0.store(is_unheard, Ordering::Release);
    }
}

impl Reused {
    /// Wraps a new connection.
    ///
    /// # Errors
    /// The kernel rejects an option.
    pub fn new(stream: Secure) -> io::Result<Self> {
        keepalive::give_up_after(stream.get_ref().0, UNACKNOWLEDGED_MAX)?;
        Ok(Self { stream, has_heard: false, is_unheard: Unheard::default() })
    }
}

impl Connection for Reused {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.is_unheard.clone())
    }
}

impl AsyncRead for Reused {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.has_heard = true;
            self.is_unheard.set(false);
        }
        read
    }
}

impl AsyncWrite for Reused {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.is_unheard.set(self.has_heard);
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.is_unheard.set(self.has_heard);
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use api_auth::pki::Subject;
    use api_auth::{Pki, PkiConfig};
    use rustls::ServerConfig;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::tls;

    #[tokio::test]
    async fn it_ends_when_the_server_is_gone_and_knows_whether_it_was_heard() {
        let directory = tempfile::tempdir().expect("a directory");
        let pki = Pki::open(directory.path(), &PkiConfig::for_cluster("cluster.local")).expect("keys");
        let names = PkiConfig { names: ["x".to_owned()].into(), addresses: [].into() };
        let identity = pki.issue(&Subject::server("x", &names), Duration::from_secs(3_600)).expect("a certificate");
        let (certificates, key) = tls::chain(&identity, "the server's certificate").expect("PEM");
        let config = ServerConfig::builder_with_provider(tls::provider()).with_safe_default_protocol_versions().expect("versions");
        let config = config.with_no_client_auth().with_single_cert(certificates, key).expect("a certificate");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let dialled = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("connected");
        let (accepted, _) = listener.accept().await.expect("accepted");
        let connector = tls::connector(Some(pki.ca_pem().as_bytes()), "the authority").expect("a connector");
        let shaken = tokio::join!(acceptor.accept(accepted), connector.connect("x".try_into().expect("a name"), dialled));
        let (mut server, stream) = (shaken.0.expect("a handshake"), shaken.1.expect("a handshake"));
        let mut reused = Reused::new(stream).expect("set");
        let socket = socket2::SockRef::from(reused.stream.get_ref().0);
        assert_eq!(socket.tcp_user_timeout().ok(), Some(Some(UNACKNOWLEDGED_MAX)));
        let (unheard, mut byte) = (reused.is_unheard.clone(), [0]);
        for is_unheard in [false, true] {
            reused.write_all(b"a").await.expect("written");
            assert_eq!(unheard.get(), is_unheard, "nothing was heard since, but before");
            server.write_all(b"b").await.expect("written");
            server.flush().await.expect("written");
            reused.read_exact(&mut byte).await.expect("read");
            assert!(!unheard.get());
        }
        reused.write_all(b"a").await.expect("written");
        drop(server);
        assert!(reused.read_exact(&mut byte).await.is_err());
        assert!(unheard.get(), "an end is no answer");
    }
}
