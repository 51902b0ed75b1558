//! One forwarded connection: bytes in both directions between a client and a port of a Pod, until both have ended. Either side
//! may close its half first. A Pod that has sent everything may still read, and the bytes of a client that leaves are still
//! delivered.

use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// How long a client may be silent after the Pod has sent everything; containerd's time.
const SILENCE_LIMIT: Duration = Duration::from_secs(1);
/// Bytes read from the Pod at once.
const CHUNK_LEN: usize = 32 * 1_024;

/// Serves a connection. `from_client` ends with the client's input, also when it left. `to_client` reads the Pod to its end
/// even when the client does not read any more: closing a socket with unread bytes loses the bytes that wait to be sent.
pub(super) async fn carry<Down: Future<Output = ()>>(
    stream: TcpStream,
    from_client: impl Stream<Item = Bytes>,
    to_client: impl FnOnce(FromPod) -> Down,
) {
    // Small answers must not wait for more bytes; a socket without this option still works.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "setting TCP_NODELAY failed");
    }
    let (from_pod, to_pod) = stream.into_split();
    let said_all = CancellationToken::new();
    let down = async {
        to_client(FromPod { half: from_pod, buffer: vec![0; CHUNK_LEN] }).await;
        said_all.cancel();
    };
    tokio::join!(up(from_client, to_pod, &said_all), down);
}

/// The Pod's bytes.
pub(super) struct FromPod {
    half: OwnedReadHalf,
    buffer: Vec<u8>,
}

impl FromPod {
    /// The next bytes; `None` at the end. A connection that the Pod resets ends like one that it closes: an error would make
    /// clients give up all their other connections.
    pub(super) async fn next(&mut self) -> Option<&[u8]> {
        match self.half.read(&mut self.buffer).await {
            Ok(len @ 1..) => self.buffer.get(..len),
            Ok(0) | Err(_) => None,
        }
    }

    /// Reads to the end and discards the bytes.
    pub(super) async fn drain(mut self) {
        while self.next().await.is_some() {}
    }
}

/// The client's bytes, and then its end.
async fn up(from_client: impl Stream<Item = Bytes>, mut to_pod: OwnedWriteHalf, said_all: &CancellationToken) {
    let mut from_client = std::pin::pin!(from_client);
    loop {
        let silence = async {
            said_all.cancelled().await;
            sleep(SILENCE_LIMIT).await;
        };
        let bytes = tokio::select! {
            bytes = from_client.next() => bytes,
            () = silence => None,
        };
        let Some(bytes) = bytes else { break };
        if to_pod.write_all(&bytes).await.is_err() {
            // The Pod does not read any more, but it may still send. The rest is discarded.
            return;
        }
    }
    if let Err(error) = to_pod.shutdown().await {
        tracing::debug!(%error, "the Pod is gone before the client's end");
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::sync::{mpsc, oneshot};
    use tokio::time::timeout;
    use tokio_stream::wrappers::ReceiverStream;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);
    /// More than the buffers of the sockets.
    const MUCH: usize = 16 << 20;

    /// A connection to a Pod, and the Pod's end of it.
    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
        let ours = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("connects");
        (ours, listener.accept().await.expect("accepts").0)
    }

    #[tokio::test]
    async fn a_pod_that_says_nothing_more_still_listens() {
        let (ours, mut pod) = connection().await;
        pod.shutdown().await.expect("its end");
        let (input, from_client) = mpsc::channel(1);
        let (ended, has_ended) = oneshot::channel();
        let carrying = tokio::spawn(carry(ours, ReceiverStream::new(from_client), async |from_pod: FromPod| {
            from_pod.drain().await;
            ended.send(()).expect("is waited for");
        }));
        has_ended.await.expect("the Pod's end is heard");
        for _ in 0..2 {
            input.send(Bytes::from_static(b"word ")).await.expect("is taken");
        }
        drop(input);
        let mut heard = String::new();
        timeout(SOON, pod.read_to_string(&mut heard)).await.expect("in time").expect("reads");
        assert_eq!(heard, "word word ");
        timeout(SOON, carrying).await.expect("in time").expect("ends");
    }

    #[tokio::test]
    async fn a_silent_client_is_not_waited_for_when_the_pod_has_ended() {
        let (ours, pod) = connection().await;
        drop(pod);
        let (_input, from_client) = mpsc::channel(1);
        let carrying = carry(ours, ReceiverStream::new(from_client), FromPod::drain);
        timeout(SOON, carrying).await.expect("in time");
    }

    #[tokio::test]
    async fn what_a_client_sent_arrives_while_the_pod_speaks_to_nobody() {
        let (ours, pod) = connection().await;
        // The client has left: all its input is delivered, and it reads nothing.
        let words = futures::stream::iter(std::iter::repeat_n(Bytes::from(vec![b'z'; 1 << 20]), MUCH >> 20));
        let carrying = tokio::spawn(carry(ours, words, FromPod::drain));
        let (mut from, mut to) = pod.into_split();
        let echo = async {
            let count = tokio::io::copy(&mut from, &mut to).await.expect("echoes");
            to.shutdown().await.expect("its end");
            count
        };
        assert_eq!(timeout(SOON, echo).await.expect("in time"), MUCH as u64);
        timeout(SOON, carrying).await.expect("in time").expect("ends");
    }
}
