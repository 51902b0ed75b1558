//! A websocket as a plain stream of bytes: kubectl puts SPDY into a websocket, so that it passes where only websockets do.
//! Message boundaries have no meaning.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::extract::ws::{Message, WebSocket};
use bytes::Bytes;
use futures::{Sink as _, Stream as _};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::channel::closing;

/// The bytes of a websocket's binary messages.
pub(super) struct SocketBytes {
    socket: WebSocket,
    /// The rest of the message that is being read.
    rest: Bytes,
    said_goodbye: bool,
}

impl SocketBytes {
    pub(super) fn new(socket: WebSocket) -> Self {
        Self { socket, rest: Bytes::new(), said_goodbye: false }
    }

    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_ready(context).map_err(io::Error::other)
    }

    fn say(&mut self, message: Message) -> io::Result<()> {
        Pin::new(&mut self.socket).start_send(message).map_err(io::Error::other)
    }
}

impl AsyncRead for SocketBytes {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.socket).poll_next(context)) {
                Some(Ok(Message::Binary(bytes))) => self.rest = bytes,
                Some(Ok(Message::Close(_))) | None => return Poll::Ready(Ok(())),
                Some(Ok(Message::Text(_))) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "a text message in a tunnel")));
                }
                // The websocket itself answers it.
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
        let len = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest.split_to(len));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SocketBytes {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_room(context))?;
        self.say(Message::Binary(Bytes::copy_from_slice(bytes)))?;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context).map_err(io::Error::other)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.said_goodbye {
            ready!(self.poll_room(context))?;
            self.say(closing())?;
            self.said_goodbye = true;
        }
        self.poll_flush(context)
    }
}
