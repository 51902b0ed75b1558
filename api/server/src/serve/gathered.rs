//! A socket that collects the written bytes and sends them when the writing task has no more work for now.
//!
//! HTTP/2 flushes after every frame: a hundred streams with an event each would cost a hundred system calls. So flushes
//! are delayed. The connection's task sends the collected bytes at the end of each poll, and before that only when a
//! limit is reached. Everything from one poll is sent together.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// Maximum number of collected bytes: the kernel takes no more than this at once over loopback or with segmentation
/// offload.
const GATHERED_BYTES_MAX: usize = 64 << 10;
/// How many bytes of buffer an idle connection may keep.
const IDLE_BYTES_MAX: usize = 4 << 10;

/// The socket of a connection.
#[derive(Debug)]
pub(super) struct Gathered {
    read: OwnedReadHalf,
    outgoing: Arc<Mutex<Outgoing>>,
}

/// The handle with which the connection's task sends.
#[derive(Clone, Debug)]
pub(super) struct Gatherer(Arc<Mutex<Outgoing>>);

#[derive(Debug)]
struct Outgoing {
    socket: OwnedWriteHalf,
    waiting: BytesMut,
    /// Whether flushes are delayed.
    gathers: bool,
}

impl Gathered {
    /// Sends at once until [`Gatherer::gather`] is called.
    pub(super) fn new(stream: TcpStream) -> Self {
        let (read, socket) = stream.into_split();
        let outgoing = Outgoing { socket, waiting: BytesMut::new(), gathers: false };
        Self { read, outgoing: Arc::new(Mutex::new(outgoing)) }
    }

    pub(super) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.read.peer_addr()
    }

    /// The handle for the task that writes.
    pub(super) fn gatherer(&self) -> Gatherer {
        Gatherer(Arc::clone(&self.outgoing))
    }
}

impl Gatherer {
    /// From now on flushes are delayed: the caller must run the connection with [`Gatherer::drive`].
    pub(super) fn gather(&self) {
        self.0.lock().gathers = true;
    }

    /// Polls a connection, and sends at the end of each poll.
    pub(super) async fn drive<F: Future>(&self, mut connection: Pin<&mut F>) -> F::Output {
        poll_fn(|cx| {
            let ended = connection.as_mut().poll(cx);
            // An error now makes the connection's next write fail. If not all bytes can be sent now, the socket wakes
            // this task again.
            let _reported_by_the_next_write = self.0.lock().poll_send(cx);
            ended
        })
        .await
    }
}

impl Outgoing {
    /// Sends all collected bytes.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.waiting.is_empty() {
            let sent = ready!(Pin::new(&mut self.socket).poll_write(cx, &self.waiting))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.waiting.advance(sent);
        }
        if self.waiting.capacity() > IDLE_BYTES_MAX {
            self.waiting = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Waits until the buffer has space; returns how many bytes.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.waiting.len() >= GATHERED_BYTES_MAX {
            ready!(self.poll_send(cx))?;
        }
        Poll::Ready(Ok(GATHERED_BYTES_MAX - self.waiting.len()))
    }
}

impl AsyncRead for Gathered {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Gathered {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut outgoing = self.outgoing.lock();
        if !outgoing.gathers {
            return Pin::new(&mut outgoing.socket).poll_write_vectored(cx, slices);
        }
        let room = ready!(outgoing.poll_room(cx))?;
        let mut left = room;
        for slice in slices {
            let taken = slice.get(..left.min(slice.len())).unwrap_or_default();
            outgoing.waiting.extend_from_slice(taken);
            left -= taken.len();
        }
        Poll::Ready(Ok(room - left))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut outgoing = self.outgoing.lock();
        if outgoing.gathers { Poll::Ready(Ok(())) } else { outgoing.poll_send(cx) }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut outgoing = self.outgoing.lock();
        ready!(outgoing.poll_send(cx))?;
        Pin::new(&mut outgoing.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (Gathered, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (Gathered::new(accepted.expect("accepts").0), client.expect("connects"))
    }

    #[tokio::test]
    async fn writes_of_one_poll_leave_together_at_its_end() {
        let (mut socket, mut client) = pair().await;
        let gatherer = socket.gatherer();
        gatherer.gather();
        let connection = async {
            for word in ["one ", "two ", "three"] {
                socket.write_all(word.as_bytes()).await.expect("writes");
                socket.flush().await.expect("puts off");
            }
            let mut nothing = [0; 1];
            assert_eq!(client.try_read(&mut nothing).expect_err("nothing").kind(), io::ErrorKind::WouldBlock);
            tokio::task::yield_now().await;
            let mut all = [0; 32];
            let len = client.read(&mut all).await.expect("reads");
            assert_eq!(&all[..len], b"one two three");
        };
        gatherer.drive(std::pin::pin!(connection)).await;
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_holds_the_writer_up() {
        const LEN: usize = 32 << 20;
        let (mut socket, mut client) = pair().await;
        let gatherer = socket.gatherer();
        gatherer.gather();
        let writing = tokio::spawn(async move {
            let connection = async {
                socket.write_all(&vec![7; LEN]).await.expect("writes");
                socket.shutdown().await.expect("ends");
            };
            gatherer.clone().drive(std::pin::pin!(connection)).await;
            gatherer.0.lock().waiting.capacity()
        });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!writing.is_finished(), "more than any socket holds");
        let mut read = Vec::new();
        client.read_to_end(&mut read).await.expect("reads");
        assert_eq!((read.len(), read.iter().all(|byte| *byte == 7)), (LEN, true));
        assert!(writing.await.expect("no panic") <= IDLE_BYTES_MAX);
    }
}
