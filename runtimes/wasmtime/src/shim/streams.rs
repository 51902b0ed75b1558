//! The streams of one HTTP/2 connection: whether it is of use, and whether its client reads the answers. The socket does not say that,
//! because a client may read from it and give a stream no room.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use wasmtime_wasi_http::{Error, WasiBody};

/// The open streams of a connection.
#[derive(Clone)]
pub struct Streams {
    open: Arc<Mutex<Open>>,
    /// How long a client may leave an answer unread.
    unread_limit: Duration,
}

#[derive(Default)]
struct Open {
    /// The streams that there have been.
    begun: u64,
    /// Since when each open one waits for its client.
    waiting: HashMap<u64, Option<Instant>>,
}

/// Why a connection should end.
#[derive(Debug, PartialEq, Eq)]
pub enum Unused {
    /// It has no stream.
    Idle,
    /// Its client does not read an answer.
    Stalled,
}

/// A stream, until it is dropped.
pub struct OpenStream {
    streams: Streams,
    number: u64,
}

/// The body of a stream's answer.
pub struct Answer {
    body: WasiBody,
    stream: OpenStream,
}

impl Streams {
    /// None yet.
    pub fn new(unread_limit: Duration) -> Self {
        Self { open: Arc::default(), unread_limit }
    }

    /// A stream begins: its request has arrived.
    pub fn begin(&self) -> OpenStream {
        let mut open = self.open.lock();
        open.begun += 1;
        let number = open.begun;
        open.waiting.insert(number, None);
        OpenStream { streams: self.clone(), number }
    }

    /// Ends when the connection had no stream for the limit, or when its client leaves an answer unread. It looks once in each limit, so
    /// it may end so much later.
    pub async fn unused(&self, idle_limit: Duration) -> Unused {
        let mut begun_before = None;
        loop {
            if let Some(unused) = self.check(begun_before) {
                return unused;
            }
            begun_before = Some(self.open.lock().begun);
            sleep(idle_limit).await;
        }
    }

    fn check(&self, begun_before: Option<u64>) -> Option<Unused> {
        let open = self.open.lock();
        let is_idle = open.waiting.is_empty() && begun_before == Some(open.begun);
        let is_stalled = || open.waiting.values().flatten().any(|since| since.elapsed() >= self.unread_limit);
        if is_idle { Some(Unused::Idle) } else { is_stalled().then_some(Unused::Stalled) }
    }
}

impl OpenStream {
    /// Its answer, which waits for its client.
    pub fn answer(self, body: WasiBody) -> Answer {
        self.wait(Some(Instant::now()));
        Answer { body, stream: self }
    }

    fn wait(&self, since: Option<Instant>) {
        self.streams.open.lock().waiting.insert(self.number, since);
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.streams.open.lock().waiting.remove(&self.number);
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Error;

    /// The connection asks for the next part when its client has room for it.
    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        self.stream.wait(polled.is_ready().then(Instant::now));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full};

    use super::*;

    const LIMIT: Duration = Duration::from_millis(30);

    fn body() -> WasiBody {
        Full::new(Bytes::from_static(b"answer")).map_err(|never| match never {}).boxed_unsync()
    }

    #[tokio::test]
    async fn a_connection_without_streams_is_idle_and_one_whose_answers_are_not_read_is_stalled() {
        let streams = Streams::new(LIMIT);
        assert_eq!(streams.unused(LIMIT).await, Unused::Idle);
        let handled = streams.begin();
        let waits = tokio::time::timeout(LIMIT * 5, streams.unused(LIMIT)).await;
        assert!(waits.is_err(), "a guest that takes its time: {waits:?}");
        let mut answer = handled.answer(body());
        assert_eq!(streams.unused(LIMIT).await, Unused::Stalled, "no part was read");
        assert!(answer.frame().await.unwrap().is_ok());
        assert_eq!(streams.unused(LIMIT).await, Unused::Stalled, "the part was not sent");
        drop(answer);
        assert_eq!(streams.unused(LIMIT).await, Unused::Idle);
    }

    #[tokio::test]
    async fn short_streams_are_use() {
        let streams = Streams::new(LIMIT);
        let used = async {
            loop {
                drop(streams.begin());
                sleep(LIMIT / 10).await;
            }
        };
        tokio::select! {
            () = used => {}
            unused = streams.unused(LIMIT) => panic!("{unused:?}"),
            () = sleep(LIMIT * 6) => {}
        }
    }
}
