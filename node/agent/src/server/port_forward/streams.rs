//! `portforward.k8s.io`: for each connection the client opens two streams with one request id, `error` and `data`, which name
//! the port. Connections are independent of each other; one that fails sends the reason on its error stream.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use node_spdy::frame::Reset;
use node_spdy::{Connection, Receiving, Sending, Stream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::dial::dial;
use super::relay::{FromPod, carry};
use super::{DELIVERY_TIMEOUT, Target, deliver};

/// How long the second stream of a pair may take; upstream's default.
const PAIR_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves every connection that the client opens, until the client is gone.
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

/// Streams whose other one is not open yet.
#[derive(Default)]
struct Pairs(HashMap<String, Half>);

struct Half {
    stream: Stream,
    is_error: bool,
    until: Instant,
}

impl Pairs {
    /// A pair, when this stream completes one. A stream that cannot be part of a pair is rejected.
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

    /// The time of the next check for pairs that are not complete.
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

/// The id that makes two streams a pair. Old clients send none and open the error stream first.
fn request_of(stream: &Stream, is_error: bool) -> String {
    match stream.headers.get("requestid") {
        Some(id) => id.to_owned(),
        None if is_error => stream.id.to_string(),
        None => stream.id.saturating_sub(2).to_string(),
    }
}

/// One connection from its start to its end.
async fn forward(pair: Pair, target: Target) {
    let Pair { port, data, error } = pair;
    match dial(&target, port).await {
        Ok(stream) => {
            let lost = data.sending.lost();
            let carried = carry(stream, client_bytes(data.receiving), async |from_pod| {
                speak(from_pod, data.sending, error.sending).await;
            });
            tokio::select! {
                () = carried => {}
                () = async { lost.await; sleep(DELIVERY_TIMEOUT).await } => {
                    tracing::debug!("a Pod did not end after its client had broken off");
                }
            }
        }
        Err(refused) => {
            let text = format!("error forwarding port {port} to pod {}, uid {}: {refused}", target.name, target.uid);
            fail(error.sending, &text).await;
            finish(data.sending).await;
        }
    }
}

/// The client's bytes. Breaking off is an end too: the bytes that were sent before are delivered.
fn client_bytes(from: Receiving) -> impl futures::Stream<Item = Bytes> {
    futures::stream::unfold(from, async |mut from| from.next().await.ok().flatten().map(|bytes| (bytes, from)))
}

/// The Pod's bytes, and then its end. No error follows then: a client may wait for that before it closes.
async fn speak(mut from_pod: FromPod, mut to: Sending, errors: Sending) {
    while let Some(bytes) = from_pod.next().await {
        if to.send(Bytes::copy_from_slice(bytes)).await.is_err() {
            return from_pod.drain().await;
        }
    }
    finish(to).await;
    finish(errors).await;
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
