//! `portforward.k8s.io`: for each connection the client opens two streams with one request id, `error`
//! and `data`, which name the port. Connections know nothing of each other; one that fails says why on
//! its error stream.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use node_spdy::frame::Reset;
use node_spdy::{Connection, Lost, Receiving, Sending, Stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::dial::dial;
use super::{Target, deliver};

/// How long the second stream of a pair may take; upstream's default.
const PAIR_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes read from the Pod at once.
const CHUNK_LEN: usize = 32 * 1_024;

/// Serves every connection that the client asks for, until the client is gone.
pub(super) async fn serve(mut connection: Connection, target: Target) {
    let mut pairs = Pairs::default();
    let mut forwards = JoinSet::new();
    loop {
        tokio::select! {
            offered = connection.accept() => match offered {
                Some(stream) => {
                    if let Some(whole) = pairs.add(stream) {
                        forwards.spawn(forward(whole, target.clone()));
                    }
                }
                None => break,
            },
            Some(_) = forwards.join_next() => {}
            () = sleep_until(pairs.next_timeout()) => pairs.expire(&mut forwards),
        }
    }
    deliver(forwards).await;
}

/// Both streams of one connection.
struct Pair {
    port: u16,
    data: Stream,
    error: Stream,
}

/// Streams whose other one has not come yet.
#[derive(Default)]
struct Pairs(HashMap<String, Half>);

struct Half {
    stream: Stream,
    is_error: bool,
    until: Instant,
}

impl Pairs {
    /// A pair, when this makes one whole. A stream that can be no part of one is refused.
    fn add(&mut self, stream: Stream) -> Option<Pair> {
        let is_error = match stream.headers.get("streamtype") {
            Some("error") => true,
            Some("data") => false,
            _ => return refuse(stream, "stream type"),
        };
        let Some(port) = stream.headers.get("port").and_then(|port| port.parse().ok()).filter(|port| *port > 0) else {
            return refuse(stream, "port");
        };
        let request = request_of(&stream, is_error);
        match self.0.remove(&request) {
            None => {
                self.0.insert(request, Half { stream, is_error, until: Instant::now() + PAIR_TIMEOUT });
                None
            }
            Some(other) if other.is_error == is_error => {
                self.0.insert(request, other);
                refuse(stream, "request id")
            }
            Some(Half { stream: error, is_error: true, .. }) => Some(Pair { port, data: stream, error }),
            Some(Half { stream: data, .. }) => Some(Pair { port, data, error: stream }),
        }
    }

    /// A time to look again for pairs that are not made whole.
    fn next_timeout(&self) -> Instant {
        let far = Instant::now() + PAIR_TIMEOUT;
        self.0.values().map(|half| half.until).min().unwrap_or(far)
    }

    fn expire(&mut self, tasks: &mut JoinSet<()>) {
        let now = Instant::now();
        for (request, half) in self.0.extract_if(|_, half| half.until <= now) {
            tracing::debug!(request, "timed out waiting for streams");
            if half.is_error {
                tasks.spawn(async move {
                    fail(half.stream.sending, &format!("(request={request}) timed out waiting for streams")).await;
                });
            }
        }
    }
}

fn refuse(stream: Stream, what: &str) -> Option<Pair> {
    tracing::debug!(stream = stream.id, what, "a stream of a forward without a usable header");
    stream.sending.reset(Reset::RefusedStream);
    None
}

/// The id that makes two streams a pair. Clients of old name none and open the error stream first.
fn request_of(stream: &Stream, is_error: bool) -> String {
    match stream.headers.get("requestid") {
        Some(id) => id.to_owned(),
        None if is_error => stream.id.to_string(),
        None => stream.id.saturating_sub(2).to_string(),
    }
}

/// One connection from its beginning to its end.
async fn forward(pair: Pair, target: Target) {
    let Pair { port, data, error } = pair;
    match dial(&target, port).await {
        Ok(stream) => {
            carry(stream, data.receiving, data.sending).await;
            finish(error.sending).await;
        }
        Err(refused) => {
            let text = format!("error forwarding port {port} to pod {}, uid {}: {refused}", target.name, target.uid);
            fail(error.sending, &text).await;
            finish(data.sending).await;
        }
    }
}

/// Bytes both ways until the Pod has said all, or the client breaks off.
async fn carry(stream: TcpStream, from_client: Receiving, to_client: Sending) {
    // Small answers must not wait for more; a socket that refuses this still works.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "setting TCP_NODELAY failed");
    }
    let (from_pod, to_pod) = stream.into_split();
    let mut up = std::pin::pin!(up(from_client, to_pod));
    let mut down = std::pin::pin!(down(from_pod, to_client));
    let mut talking = true;
    loop {
        tokio::select! {
            () = &mut down => return,
            sent = &mut up, if talking => match sent {
                Ok(()) => talking = false,
                Err(Lost) => return,
            },
        }
    }
}

/// What the client says, and that it has said all.
async fn up(mut from: Receiving, mut to: OwnedWriteHalf) -> Result<(), Lost> {
    while let Some(bytes) = from.next().await? {
        if to.write_all(&bytes).await.is_err() {
            // The Pod does not listen any more; it may still speak. The rest goes nowhere.
            return Ok(());
        }
    }
    if let Err(error) = to.shutdown().await {
        tracing::debug!(%error, "the Pod is gone before the client's end");
    }
    Ok(())
}

/// What the Pod says, and that it has said all.
async fn down(mut from: OwnedReadHalf, mut to: Sending) {
    let mut buffer = vec![0; CHUNK_LEN];
    // A connection that the Pod resets ends like one that it closes: to call that an error would make
    // clients give up every other connection too.
    while let Ok(len @ 1..) = from.read(&mut buffer).await {
        if to.send(Bytes::copy_from_slice(buffer.get(..len).unwrap_or_default())).await.is_err() {
            return;
        }
    }
    finish(to).await;
}

async fn fail(mut to: Sending, text: &str) {
    if to.send(Bytes::copy_from_slice(text.as_bytes())).await.is_ok() {
        finish(to).await;
    }
}

async fn finish(to: Sending) {
    if to.finish().await.is_err() {
        tracing::debug!("the client of a forward is gone");
    }
}
