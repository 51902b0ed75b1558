//! Closes idle bodies and connections: a client that sends or reads too slowly, and a guest that has begun an answer and then
//! sends nothing, use an instance no longer than this.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use runtimes_shim::requests::InFlight;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep, sleep};
use wasmtime_wasi_http::{Error, WasiBody};

use super::handler::Progress;

/// Counts the time without progress.
struct Idle {
    limit: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    counting: bool,
}

impl Idle {
    fn new(limit: Duration) -> Self {
        Self { limit, sleep: None, counting: false }
    }

    fn moved(&mut self) {
        self.counting = false;
    }

    /// There was no progress: ready when that has lasted for the limit.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep(limit)));
        if !std::mem::replace(&mut self.counting, true) {
            sleep.as_mut().reset(Instant::now() + limit);
        }
        sleep.as_mut().poll(context)
    }
}

/// The guest that writes a body.
pub struct Writer {
    /// Whether it has failed: then the body has not ended, it was cut.
    pub progress: Arc<Progress>,
    /// The task that runs it, which is dropped with the body unless the body was written to its end.
    pub task: Option<AbortHandle>,
}

/// A body whose next part must come within a limit.
pub struct IdleBody {
    body: WasiBody,
    idle: Idle,
    writer: Option<Writer>,
    /// The remaining bytes, if the length was declared: the reader does not ask for the end after them.
    left: Option<u64>,
    /// The request that the body answers.
    _request: Option<InFlight>,
}

impl IdleBody {
    /// The body of a client.
    pub fn of_client(body: WasiBody, limit: Duration) -> Self {
        Self { body, idle: Idle::new(limit), writer: None, left: None, _request: None }
    }

    /// The body of a guest, which answers a request. A client that disconnects in the middle drops the guest.
    pub fn of_guest(body: WasiBody, limit: Duration, declared: Option<u64>, writer: Writer, request: Option<InFlight>) -> Self {
        Self { body, idle: Idle::new(limit), writer: Some(writer), left: declared, _request: request }
    }

    /// Whether the whole body has been passed on, as far as is known.
    fn is_whole(&self) -> bool {
        self.left == Some(0) || self.body.is_end_stream()
    }
}

impl Body for IdleBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.idle.moved();
            match &frame {
                Some(Ok(part)) => {
                    let len = part.data_ref().map_or(0, |data| u64::try_from(data.len()).unwrap_or(u64::MAX));
                    self.left = self.left.map(|left| left.saturating_sub(len));
                }
                Some(Err(_)) => {}
                None if self.writer.take().is_some_and(|writer| writer.progress.has_failed()) => {
                    return Poll::Ready(Some(Err(Error::HttpResponseIncomplete)));
                }
                None => {}
            }
            return Poll::Ready(frame);
        }
        ready!(self.idle.poll(context));
        Poll::Ready(Some(Err(Error::ConnectionReadTimeout)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for IdleBody {
    fn drop(&mut self) {
        let writer = self.writer.take().filter(|_| !self.is_whole());
        if let Some(task) = writer.and_then(|writer| writer.task) {
            task.abort();
        }
    }
}

/// A connection whose client must read within a limit.
pub struct ReadingClient<S> {
    stream: S,
    idle: Idle,
    /// Bytes of the client that were looked at and are still to be read.
    begin: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ReadingClient<S> {
    /// Of a connection.
    pub fn new(stream: S, limit: Duration) -> Self {
        Self { stream, idle: Idle::new(limit), begin: Vec::new() }
    }

    /// Whether the client begins with these bytes. Waits until that is certain; the bytes are still to be read.
    pub async fn begins_with(&mut self, wanted: &[u8]) -> io::Result<bool> {
        while wanted.starts_with(&self.begin) && self.begin.len() < wanted.len() {
            let missing = wanted.len() - self.begin.len();
            if (&mut self.stream).take(u64::try_from(missing).unwrap_or(0)).read_buf(&mut self.begin).await? == 0 {
                return Ok(false);
            }
        }
        Ok(self.begin == wanted)
    }

    fn watch<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.idle.moved();
            return written;
        }
        ready!(self.idle.poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ReadingClient<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.begin.is_empty() {
            let fits = self.begin.len().min(buffer.remaining());
            let rest = self.begin.split_off(fits);
            buffer.put_slice(&std::mem::replace(&mut self.begin, rest));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ReadingClient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, written)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, parts: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use http_body_util::BodyExt as _;
    use tokio::net::TcpStream;

    use super::*;

    /// Parts, and then silence or the end.
    struct Parts(VecDeque<&'static str>, bool);

    impl Body for Parts {
        type Data = Bytes;
        type Error = Error;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
            match (self.0.pop_front(), self.1) {
                (Some(part), _) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(part.as_bytes()))))),
                (None, true) => Poll::Ready(None),
                (None, false) => Poll::Pending,
            }
        }
    }

    fn body(parts: &[&'static str], ends: bool) -> WasiBody {
        Parts(parts.iter().copied().collect(), ends).boxed_unsync()
    }

    const LIMIT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn the_first_bytes_of_a_client_are_looked_at_and_then_read() {
        use tokio::io::AsyncWriteExt as _;

        for (parts, begins, whole) in [
            (&["abc", "def"][..], true, "abcdef"),
            (&["ab", "cdef"], true, "abcdef"),
            (&["abd"], false, "abd"),
            (&["x"], false, "x"),
            (&["ab"], false, "ab"),
            (&[""], false, ""),
        ] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            client.set_nodelay(true).unwrap();
            let mut server = ReadingClient::new(listener.accept().await.unwrap().0, LIMIT);
            let sends = async {
                for part in parts {
                    client.write_all(part.as_bytes()).await.unwrap();
                    tokio::time::sleep(LIMIT).await;
                }
                drop(client);
            };
            let reads = async {
                let begins = server.begins_with(b"abc").await.unwrap();
                let mut all = String::new();
                server.read_to_string(&mut all).await.unwrap();
                (begins, all)
            };
            let (_, (does, all)) = tokio::join!(sends, reads);
            assert_eq!((does, all.as_str()), (begins, whole), "{parts:?}");
        }
    }

    #[tokio::test]
    async fn a_body_that_falls_silent_is_an_error_and_one_that_ends_is_whole() {
        let whole = IdleBody::of_client(body(&["a", "b"], true), LIMIT).collect().await.unwrap();
        assert_eq!(whole.to_bytes(), "ab");
        let mut silent = IdleBody::of_client(body(&["a"], false), LIMIT);
        assert!(silent.frame().await.unwrap().is_ok());
        assert!(matches!(silent.frame().await.unwrap(), Err(Error::ConnectionReadTimeout)));
    }

    #[tokio::test]
    async fn the_end_of_a_guest_that_failed_is_not_the_end_of_its_answer() {
        for has_failed in [false, true] {
            let progress = Arc::<Progress>::default();
            let writer = Writer { progress: progress.clone(), task: None };
            let mut answer = IdleBody::of_guest(body(&["a"], true), LIMIT, None, writer, None);
            assert!(answer.frame().await.unwrap().is_ok());
            if has_failed {
                progress.fail();
                assert!(matches!(answer.frame().await.unwrap(), Err(Error::HttpResponseIncomplete)));
            }
            assert!(answer.frame().await.is_none());
        }
    }

    #[tokio::test]
    async fn a_guest_ends_with_its_answer_unless_that_was_whole() {
        /// The parts that exist, whether the body ends, the declared length, the parts that the client reads; the guest lives
        /// on.
        type Case = (&'static [&'static str], bool, Option<u64>, usize, bool);
        let cases: [Case; 4] = [
            (&["ab"], true, None, 2, true),
            (&["ab"], false, Some(2), 1, true),
            (&["ab"], false, Some(3), 1, false),
            (&["ab"], true, None, 1, false),
        ];
        for (parts, ends, declared, taken, lives) in cases {
            let guest = tokio::spawn(std::future::pending::<()>());
            let writer = Writer { progress: Arc::default(), task: Some(guest.abort_handle()) };
            let mut answer = IdleBody::of_guest(body(parts, ends), LIMIT, declared, writer, None);
            for _ in 0..taken {
                let _part = answer.frame().await;
            }
            drop(answer);
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            assert_eq!(!guest.is_finished(), lives, "{parts:?} {ends} {declared:?} {taken}");
            guest.abort();
        }
    }
}
