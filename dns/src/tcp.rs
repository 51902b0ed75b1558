//! Questions over TCP. hickory's own listener accepts any number of connections; a Pod that opens connections all day would use
//! up every file of the process. So the number of connections is limited, and shared fairly among the clients.

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

/// Maximum number of concurrent connections.
pub(crate) const CONNECTIONS_MAX: usize = 1_024;
/// The time without a question after which a connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// The answers that wait for a slow client.
const QUEUE_LEN_MAX: usize = 32;

/// Serves a listener as long as the future is polled; connections end with it.
pub(crate) async fn serve(listener: TcpListener, handler: Handler) -> std::convert::Infallible {
    let slots = ConnectionLimiter::new(CONNECTIONS_MAX);
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, client) = tokio::select! {
            accepted = api_tasks::accept(&listener) => accepted,
            Some(ended) = connections.join_next() => {
                api_tasks::joined(ended);
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

/// One question after the other, so that no client has many concurrent ones.
async fn converse(stream: TcpStream, client: SocketAddr, handler: Handler) {
    let (messages, answers) = Messages::from_stream_with_buffer_size(AsyncIoTokioAsStd(stream), client, QUEUE_LEN_MAX);
    let mut messages = TimeoutStream::new(messages, IDLE_TIMEOUT);
    while let Some(Ok(message)) = messages.next().await {
        let (bytes, _) = message.into_parts();
        // A message that is not a question gets no answer: no client that asks sends it.
        let Ok(request) = Request::from_bytes(bytes, client, Protocol::Tcp) else { return };
        if request.metadata.message_type == MessageType::Response {
            continue;
        }
        let answering = ResponseHandle::new(client, answers.clone(), Protocol::Tcp);
        handler.handle_request::<_, TokioTime>(&request, answering).await;
    }
}
