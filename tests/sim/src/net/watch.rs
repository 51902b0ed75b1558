//! A watch through the network: its lines come late, and it may end in the middle, with or without 410 Gone.

use std::sync::Arc;
use std::time::Duration;

use api_clock::rand::Rng as _;
use bytes::Bytes;
use futures::StreamExt as _;
use http_body::Frame;
use http_body_util::{BodyDataStream, BodyExt as _, StreamBody};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tower::BoxError;

use super::{AnswerBody, Net, Process};

const GONE: &str = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\
    \"message\":\"too old resource version\",\"reason\":\"Expired\",\"code\":410}}\n";

/// Lines between server and client.
const LINES_MAX: usize = 1024;

/// How a watch ends.
#[derive(Clone, Copy)]
enum End {
    Gone,
    Eof,
    Reset,
}

/// What the server sent, with the time of its arrival.
type Line = (Instant, Result<Bytes, BoxError>);

struct Through {
    net: Arc<Net>,
    process: Arc<Process>,
    lines: mpsc::Receiver<Line>,
    end: Option<(Instant, End)>,
    is_done: bool,
}

/// The body of a watch as its client gets it.
pub fn through(net: Arc<Net>, process: Arc<Process>, body: AnswerBody) -> AnswerBody {
    let end = net.watch_lasts().map(|lasts| {
        let ends = [End::Gone, End::Eof, End::Reset];
        (Instant::now() + lasts, ends[net.rng.lock().random_range(0..ends.len())])
    });
    // Some watches are slow as a whole: then the caches of two kinds differ for long.
    let slow = if net.happens(0.3) { net.delay(|weather| weather.lag_max * 4) } else { Duration::ZERO };
    let (sender, lines) = mpsc::channel(LINES_MAX);
    tokio::spawn(send(Arc::clone(&net), BodyDataStream::new(body), slow, sender));
    let through = Through { net, process, lines, end, is_done: false };
    let stream = futures::stream::unfold(through, |mut through| async move {
        let item = through.next().await?;
        Some((item.map(Frame::data), through))
    });
    StreamBody::new(stream).boxed_unsync()
}

/// Reads what the server sends. A delayed line delays those that come after it, but not by a delay each.
async fn send(net: Arc<Net>, mut lines: BodyDataStream<AnswerBody>, slow: Duration, sender: mpsc::Sender<Line>) {
    loop {
        let line = tokio::select! {
            biased;
            () = sender.closed() => return,
            line = lines.next() => line,
        };
        let Some(line) = line else { return };
        let arrival = Instant::now() + slow + net.delay(|weather| weather.lag_max);
        if sender.send((arrival, line)).await.is_err() {
            return;
        }
    }
}

impl Through {
    async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        if self.is_done {
            return None;
        }
        let line = match self.end {
            None => self.line().await,
            Some((at, end)) => match tokio::time::timeout_at(at, self.line()).await {
                Ok(line) => line,
                Err(_) => return self.ended(end).await,
            },
        };
        self.process.resumed().await;
        if self.process.is_dead() {
            std::future::pending::<()>().await;
        }
        if self.process.is_cut() {
            // What was sent in the meantime arrives after that, or the connection is broken.
            self.process.connected().await;
            if self.net.happens(0.5) {
                return self.ended(End::Reset).await;
            }
        }
        line
    }

    async fn line(&mut self) -> Option<Result<Bytes, BoxError>> {
        let (arrival, line) = self.lines.recv().await?;
        tokio::time::sleep_until(arrival).await;
        Some(line)
    }

    async fn ended(&mut self, end: End) -> Option<Result<Bytes, BoxError>> {
        self.process.connected().await;
        self.is_done = true;
        match end {
            End::Gone => Some(Ok(Bytes::from_static(GONE.as_bytes()))),
            End::Eof => None,
            End::Reset => Some(Err("connection reset by peer".into())),
        }
    }
}
