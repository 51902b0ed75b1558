//! Connections from outside: TLS, then HTTP/1.1 or HTTP/2 until the client leaves or the server stops.

mod drain;
mod gathered;
pub(crate) mod idle;
pub(crate) mod socket;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use api_auth::authenticate::certificate_user;
use api_auth::pki::read_certificate_der;
use api_tasks::{ConnectionLimiter, ConnectionSlot};
use axum::body::Body;
use http::request::Parts;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use self::idle::{Activity, Busy};
use crate::audit::Peer;
use crate::authenticate::{Identity, UnknownCertificate};
use crate::core::Core;
use crate::tls::{HTTP2, Verifier};
use api_wire::holding::Holding;
use gathered::{Gathered, Gatherer};

/// A connection without a TLS handshake by then is dropped.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that has not sent its request's head by then is dropped.
const HEAD_TIMEOUT: Duration = Duration::from_secs(32);
/// Upstream's limit of streams on one HTTP/2 connection.
const STREAMS_MAX: u32 = 250;
/// Bytes that one HTTP/2 stream, and one connection, may send ahead.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// Bytes of the longest head of a request: path, query and headers. The `http` crate bounds path and query at 64 KiB in any case.
const HEAD_BYTES_MAX: u32 = 128 * 1024;
/// Bytes that are kept for one HTTP/2 stream whose client reads slowly.
const SEND_BUFFER_BYTES: usize = 400 * 1024;
/// Streams of one HTTP/2 connection that its client reset before the server read them, and streams that were reset for the client's
/// faults. More of either ends the connection (the rapid reset, CVE-2023-44487).
const RESETS_PENDING_MAX: usize = 20;
const RESETS_FOR_FAULTS_MAX: usize = 1_024;
/// The interval of pings on idle HTTP/2 connections, and the longest time of the reply.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Accepts connections until the server stops. `handler` answers their requests.
pub(crate) async fn serve<H, F>(
    core: Arc<Core>,
    handler: H,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    verifier: Verifier,
) -> io::Result<()>
where
    H: Fn(Request<Body>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let limiter = ConnectionLimiter::new(core.config.connections_max);
    loop {
        let (stream, client) = tokio::select! {
            () = core.shutdown.cancelled() => return Ok(()),
            accepted = api_tasks::accept(&listener) => accepted,
        };
        let Some(slot) = limiter.acquire(client.ip()).map(Arc::new) else {
            tracing::debug!(%client, "too many connections, one turned away");
            continue;
        };
        let (shutdown, handler) = (core.shutdown.clone(), handler.clone());
        let tls = (acceptor.clone(), verifier.clone());
        core.tasks.request("api-server/connection", async move {
            tokio::select! {
                () = connection(&shutdown, handler, stream, tls, &slot) => {}
                () = slot.evicted() => tracing::debug!(%client, "a connection made room for others"),
            }
        });
    }
}

/// The slot of the connection that a request came over. A tunnel after an upgrade holds it too.
pub(crate) fn slot(parts: &Parts) -> Option<Arc<ConnectionSlot>> {
    parts.extensions.get().cloned()
}

/// Waits until another connection gets the slot; for ever without a slot.
pub(crate) async fn lost(slot: Option<&ConnectionSlot>) {
    match slot {
        Some(slot) => slot.evicted().await,
        None => std::future::pending().await,
    }
}

async fn connection<H, F>(
    shutdown: &CancellationToken,
    handler: H,
    stream: TcpStream,
    (acceptor, verifier): (TlsAcceptor, Verifier),
    slot: &Arc<ConnectionSlot>,
) where
    H: Fn(Request<Body>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    if let Err(error) = stream.set_nodelay(true).and_then(|()| idle::notice_absence(&stream)) {
        tracing::debug!(%error, "setting a connection's options failed");
    }
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(Gathered::new(stream))).await;
    let stream = match handshake {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => return tracing::debug!("a TLS handshake took too long"),
    };
    let certificate = ClientCertificate::of(stream.get_ref().1.peer_certificates().unwrap_or_default(), &verifier);
    if matches!(certificate, ClientCertificate::User { .. }) {
        slot.protect();
    }
    let peer = stream.get_ref().0.peer_addr().ok().map(|address| Peer(address.ip().to_canonical()));
    let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
    let activity = Arc::new(Activity::default());
    let gatherer = stream.get_ref().0.gatherer();
    // After HTTP/1.1, an upgrade may hand the socket to a task that does not drive the gatherer.
    if speaks_http2 {
        gatherer.gather();
    }
    let service = service_fn(|request: Request<Incoming>| {
        let (handler, busy) = (handler.clone(), Busy::new(&activity));
        let (mut request, rest) = if speaks_http2 { drain::lend(request) } else { (request.map(Body::new), None) };
        certificate.mark(&mut request, api_clock::now());
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        request.extensions_mut().insert(Arc::clone(slot));
        async move { Ok::<_, Infallible>(busy.until_sent(drain::until_drained(handler(request).await, rest))) }
    });
    let io = TokioIo::new(stream);
    // The TLS handshake agreed on the protocol. Finding it out from the first bytes, as hyper-util does, would wait for these bytes
    // without a limit.
    let ended = match speaks_http2 {
        true => over_http2(shutdown, http2().serve_connection(io, service), &gatherer, &activity).await,
        false => {
            let mut serving = std::pin::pin!(http1().serve_connection(io, service).with_upgrades());
            tokio::select! {
                ended = serving.as_mut() => ended,
                () = shutdown.cancelled() => {
                    serving.as_mut().graceful_shutdown();
                    serving.await
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

async fn over_http2<S>(
    shutdown: &CancellationToken,
    serving: http2::Connection<TokioIo<TlsStream<Gathered>>, S, TokioExecutor>,
    gatherer: &Gatherer,
    activity: &Activity,
) -> hyper::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<Holding<Busy>>, Error = Infallible>,
    S::Future: Send + 'static,
{
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        ended = gatherer.drive(serving.as_mut()) => ended,
        () = shutdown.cancelled() => {
            serving.as_mut().graceful_shutdown();
            gatherer.drive(serving).await
        }
        () = activity.idle() => {
            serving.as_mut().graceful_shutdown();
            activity.touch();
            tokio::select! {
                ended = gatherer.drive(serving.as_mut()) => ended,
                // A client that sent no HTTP/2 preface does not answer to the goodbye either.
                () = activity.idle() => Ok(()),
            }
        }
    }
}

fn http1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    let head_bytes = usize::try_from(HEAD_BYTES_MAX).unwrap_or(usize::MAX);
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(head_bytes);
    builder
}

fn http2() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(HEAD_BYTES_MAX)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_pending_accept_reset_streams(RESETS_PENDING_MAX)
        .max_local_error_reset_streams(RESETS_FOR_FAULTS_MAX)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// The user in a client's certificate. The signature is checked once a connection, the time with each request, since connections may
/// outlive certificates.
#[derive(Debug)]
enum ClientCertificate {
    Nothing,
    User { identity: Identity, until: Timestamp },
    Unknown,
}

impl ClientCertificate {
    fn of(chain: &[CertificateDer<'_>], verifier: &Verifier) -> Self {
        let Some(leaf) = chain.first() else { return Self::Nothing };
        if !verifier.is_good(chain) {
            return Self::Unknown;
        }
        let until = chain.iter().filter_map(|certificate| read_certificate_der(certificate).ok()).map(|info| info.not_after).min();
        match (certificate_user(leaf), until) {
            (Some(user), Some(until)) => Self::User { identity: Identity(Arc::new(user)), until },
            _ => Self::Unknown,
        }
    }

    fn mark(&self, request: &mut Request<Body>, now: Timestamp) {
        match self {
            Self::Nothing => {}
            Self::User { identity, until } if now <= *until => {
                request.extensions_mut().insert(identity.clone());
            }
            Self::User { .. } | Self::Unknown => {
                request.extensions_mut().insert(UnknownCertificate);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api_auth::{Pki, PkiConfig};
    use jiff::SignedDuration;
    use rustls_pki_types::pem::PemObject;

    #[test]
    fn a_certificate_that_expires_during_a_connection_counts_no_more() {
        let directory = tempfile::tempdir().expect("a directory");
        let pki = Pki::open(directory.path(), &PkiConfig::for_cluster("cluster.local")).expect("keys");
        let certificate = Arc::new(crate::tls::ServingCertificate::of(&pki).expect("a certificate"));
        let (_, verifier) = crate::tls::acceptor(&pki, certificate).expect("a verifier");
        let jane = pki.issue_client("jane", &[], Duration::from_secs(3_600)).expect("a certificate");
        let chain = [CertificateDer::from_pem_slice(jane.certificate_pem.as_bytes()).expect("PEM")];
        let certificate = ClientCertificate::of(&chain, &verifier);
        let is_jane = |after: SignedDuration| {
            let mut request = Request::new(Body::empty());
            certificate.mark(&mut request, Timestamp::now() + after);
            let user = request.extensions().get::<Identity>().map(|Identity(user)| user.username.clone());
            assert_eq!(user.is_none(), request.extensions().get::<UnknownCertificate>().is_some(), "one of the two");
            user.as_deref() == Some("jane")
        };
        assert!(is_jane(SignedDuration::ZERO));
        assert!(!is_jane(SignedDuration::from_hours(2)));
    }
}
