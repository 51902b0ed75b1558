//! One connection of a client. Its first bytes say whether it speaks HTTP/2, without TLS and by prior knowledge as gRPC does (h2c), or
//! HTTP/1.1 or 1.0. Whatever a client does or omits, a connection has bounded memory and ends in bounded time.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONNECTION;
use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use wasmtime_wasi_http::WasiBody;
use wasmtime_wasi_http::io::TokioIo;

use super::http::{Arrival, Server};
use super::idle::ReadingClient;
use super::serve::Phase;
use super::streams::{Streams, Unused};
use super::timer::Timer;

/// What a client of HTTP/2 sends first (RFC 9113, section 3.4). No request of HTTP/1 begins so.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long a client may take to send a request's head, or to send the next one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for a client beyond the limit of connections.
const SPARE_HEAD_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a client may leave its answer unread.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest request head.
const HEAD_LEN_MAX: usize = 64 << 10;
/// The open requests of one HTTP/2 connection; RFC 9113 recommends no fewer than 100.
const STREAMS_MAX: u32 = 128;
/// The bytes that a client of HTTP/2 may send of bodies before their guests read them: of a connection and of each request in it, as a
/// client has them by RFC 9113.
const WINDOW_LEN: u32 = 65_535;
/// The bytes of an answer that a guest may write before the client of HTTP/2 has room for them.
const SEND_LEN_MAX: usize = 64 << 10;
/// How often a client of HTTP/2 that sends nothing is asked whether it is there, and how long it may take to answer.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a client of HTTP/2 without requests may take to confirm that the connection ends.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the first bytes of a client may take that connected just before the port was closed.
const LAST_REQUEST_TIMEOUT: Duration = Duration::from_millis(100);

/// Serves a connection until it ends. `is_spare`: there are more connections than there may be.
pub async fn serve(stream: TcpStream, server: Arc<Server>, phase: watch::Receiver<Phase>, is_spare: bool) {
    // Small answers must not wait for more bytes; a socket without this option still works.
    let _set = stream.set_nodelay(true);
    let arrival = Arrival { local: stream.local_addr().ok(), is_spare };
    serve_client(stream, move |request, arrival| server.clone().answer(request, arrival), phase, arrival).await;
}

/// The same over any stream, with what answers requests.
async fn serve_client<S, A, F>(stream: S, answer: A, mut phase: watch::Receiver<Phase>, arrival: Arrival)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Fn(Request<Incoming>, Arrival) -> F,
    F: Future<Output = Result<Response<WasiBody>, Infallible>> + Send + 'static,
{
    let mut client = ReadingClient::new(stream, WRITE_TIMEOUT);
    if arrival.is_spare {
        return serve_http1(client, answer, phase, arrival).await;
    }
    // A client that has connected just before the port was closed may have sent a request.
    let closed = async {
        drop(phase.wait_for(|phase| *phase == Phase::Closing).await);
        sleep(LAST_REQUEST_TIMEOUT).await;
    };
    let begun = tokio::select! {
        begun = timeout(HEAD_TIMEOUT, client.begins_with(PREFACE)) => begun,
        () = closed => return,
    };
    match begun {
        Ok(Ok(true)) => serve_http2(client, answer, phase).await,
        Ok(Ok(false)) => serve_http1(client, answer, phase, arrival).await,
        // The client is gone, or silent.
        Ok(Err(_)) | Err(_) => {}
    }
}

async fn serve_http1<S, A, F>(client: ReadingClient<S>, answer: A, mut phase: watch::Receiver<Phase>, arrival: Arrival)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Fn(Request<Incoming>, Arrival) -> F,
    F: Future<Output = Result<Response<WasiBody>, Infallible>> + Send + 'static,
{
    let phase_of_answers = phase.clone();
    let service = service_fn(move |request| {
        let (answering, phase) = (answer(request, arrival), phase_of_answers.clone());
        async move {
            let mut answer = answering.await;
            if *phase.borrow() > Phase::Serving
                && let Ok(answer) = &mut answer
            {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            answer
        }
    });
    let mut http = http1::Builder::new();
    let head_timeout = if arrival.is_spare { SPARE_HEAD_TIMEOUT } else { HEAD_TIMEOUT };
    http.timer(Timer::default()).header_read_timeout(head_timeout).keep_alive(!arrival.is_spare).max_buf_size(HEAD_LEN_MAX);
    let serving = http.serve_connection(TokioIo::new(client), service);
    tokio::pin!(serving);
    // How a connection ends is its client's business. What the client has sent is read first.
    tokio::select! {
        biased;
        _ended = serving.as_mut() => return,
        _closing = phase.wait_for(|phase| *phase == Phase::Closing) => serving.as_mut().graceful_shutdown(),
    }
    let _ended = serving.await;
}

async fn serve_http2<S, A, F>(client: ReadingClient<S>, answer: A, mut phase: watch::Receiver<Phase>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Fn(Request<Incoming>, Arrival) -> F,
    F: Future<Output = Result<Response<WasiBody>, Infallible>> + Send + 'static,
{
    let streams = Streams::new(WRITE_TIMEOUT);
    let opened = streams.clone();
    let service = service_fn(move |request| {
        let (answering, stream) = (answer(request, Arrival { local: None, is_spare: false }), opened.begin());
        async move {
            let answer = answering.await;
            answer.map(|answer| answer.map(|body| stream.answer(body).boxed_unsync()))
        }
    });
    let mut http = http2::Builder::new(Tasks);
    http.timer(Timer::default()).keep_alive_interval(PING_INTERVAL).keep_alive_timeout(PING_TIMEOUT).max_concurrent_streams(STREAMS_MAX);
    http.initial_stream_window_size(WINDOW_LEN).initial_connection_window_size(WINDOW_LEN).max_send_buf_size(SEND_LEN_MAX);
    http.max_header_list_size(u32::try_from(HEAD_LEN_MAX).unwrap_or(u32::MAX));
    let serving = http.serve_connection(TokioIo::new(client), service);
    tokio::pin!(serving);
    let mut is_ending = false;
    loop {
        let unused = tokio::select! {
            _ended = serving.as_mut() => return,
            _leaving = phase.wait_for(|phase| *phase > Phase::Serving), if !is_ending => Unused::Idle,
            unused = streams.unused(if is_ending { GOODBYE_TIMEOUT } else { HEAD_TIMEOUT }) => unused,
        };
        if is_ending || unused == Unused::Stalled {
            // Ends the connection, and with it all of its requests.
            return;
        }
        // The client gets time to see that it must send no more requests, and answers to those that it has sent.
        serving.as_mut().graceful_shutdown();
        is_ending = true;
    }
}

/// Runs the requests of a connection as tasks.
#[derive(Clone, Copy)]
struct Tasks;

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, stream: F) {
        tokio::spawn(stream);
    }
}

#[cfg(test)]
mod tests;
