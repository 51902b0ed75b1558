//! Questions over TCP. hickory's own listener takes as many connections as come; a Pod that opens them all day would
//! take every open file of the process, so there are so many places here, shared among those who ask.

use std::net::SocketAddr;
use std::time::Duration;

use api_tasks::ConnectionLimiter;
use futures::StreamExt as _;
use hickory_proto::op::MessageType;
use hickory_server::net::runtime::TokioTime;
use hickory_server::net::runtime::iocompat::AsyncIoTokioAsStd;
use hickory_server::net::tcp::TcpStream as Messages;
use hickory_server::net::xfer::Protocol;
use hickory_server::server::{Request, RequestHandler as _, ResponseHandle, TimeoutStream};
use tokio::net::{TcpListener, TcpStream};

use crate::handler::Handler;

/// Connections at once.
pub(crate) const CONNECTIONS_MAX: usize = 1_024;
/// Time without a question after which a connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Answers that wait for a slow client.
const QUEUE_LEN_MAX: usize = 32;
/// Pause after the system could not accept, for example because files ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Answers on a listener for as long as it is polled; connections end with it.
pub(crate) async fn serve(listener: TcpListener, handler: Handler) -> std::convert::Infallible {
    let slots = ConnectionLimiter::new(CONNECTIONS_MAX);
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = connections.join_next() => {
                api_tasks::joined(ended);
                continue;
            }
        };
        let (stream, client) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(slot) = slots.acquire(client.ip()) else { continue };
        let handler = handler.clone();
        connections.spawn(api_tasks::named("dns/connection", async move {
            tokio::select! {
                () = converse(stream, client, handler) => {}
                () = slot.evicted() => {}
            }
        }));
    }
}

/// One question after the other, so that no client has many under way.
async fn converse(stream: TcpStream, client: SocketAddr, handler: Handler) {
    let (messages, answers) = Messages::from_stream_with_buffer_size(AsyncIoTokioAsStd(stream), client, QUEUE_LEN_MAX);
    let mut messages = TimeoutStream::new(messages, IDLE_TIMEOUT);
    while let Some(Ok(message)) = messages.next().await {
        let (bytes, _) = message.into_parts();
        // What is no question is not answered: nobody who asks sends it.
        let Ok(request) = Request::from_bytes(bytes, client, Protocol::Tcp) else { return };
        if request.metadata.message_type == MessageType::Response {
            continue;
        }
        let answering = ResponseHandle::new(client, answers.clone(), Protocol::Tcp);
        handler.handle_request::<_, TokioTime>(&request, answering).await;
    }
}
