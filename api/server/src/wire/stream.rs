//! The body of a watch: what was there, then what happens, bookmarks in between, until the client
//! goes, the time is up, or the watcher was too slow.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http_body::Frame;
use tokio::time::{Instant, Sleep};

use super::present::Presentation;
use crate::cache::{Beginning, Cache, Change, Delivery, Object, Subscription, frame};
use crate::conversion::WatchConversion;
use crate::status::ApiResult;

/// How often a client that asked for bookmarks gets one: upstream's about once a minute.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Events taken at once, and bytes that are put together in one frame.
const EVENTS_AT_ONCE: usize = 64;
const FRAME_BYTES: usize = 16 * 1024;

/// A running watch.
pub(crate) struct WatchBody {
    presentation: Presentation,
    cache: Arc<Cache>,
    state: std::vec::IntoIter<Arc<Object>>,
    events: VecDeque<Delivery>,
    subscription: Subscription,
    received: Vec<Delivery>,
    bookmarks: bool,
    /// Whether the end of the initial events is still to be marked, and with which revision.
    mark_initial_end: Option<u64>,
    first: bool,
    end: Instant,
    timer: Pin<Box<Sleep>>,
    ended: bool,
    conversion: Option<WatchConversion>,
    /// Events on their way into the watch's version; nothing overtakes them.
    converting: Option<BoxFuture<'static, ApiResult<Vec<Delivery>>>>,
}

/// What the client asked for.
pub(crate) struct Wish {
    pub(crate) bookmarks: bool,
    pub(crate) mark_initial_end: bool,
    pub(crate) timeout: Duration,
    /// Where objects are converted before they are sent.
    pub(crate) conversion: Option<WatchConversion>,
}

impl WatchBody {
    pub(crate) fn new(presentation: Presentation, cache: Arc<Cache>, beginning: Beginning, subscription: Subscription, wish: Wish) -> Self {
        let now = Instant::now();
        let end = now + wish.timeout;
        let wake = if wish.bookmarks { end.min(now + BOOKMARK_EVERY) } else { end };
        Self {
            presentation,
            cache,
            state: beginning.state.into_iter(),
            events: beginning.events.into(),
            subscription,
            received: Vec::new(),
            bookmarks: wish.bookmarks,
            mark_initial_end: wish.mark_initial_end.then_some(beginning.revision),
            first: true,
            end,
            timer: Box::pin(tokio::time::sleep_until(wake)),
            ended: false,
            conversion: wish.conversion,
            converting: None,
        }
    }

    /// The next line that is ready without waiting.
    fn next_ready(&mut self) -> Option<Bytes> {
        if let Some(object) = self.state.next() {
            let first = std::mem::take(&mut self.first);
            return Some(self.presentation.frame(Change::Added, &object, first));
        }
        if let Some(revision) = self.mark_initial_end.take() {
            return Some(self.presentation.bookmark(revision, true));
        }
        let (change, event) = self.events.pop_front()?;
        let first = std::mem::take(&mut self.first);
        Some(self.presentation.event_frame(change, &event, first))
    }

    /// Lines that are ready, put together up to a bound. One line alone is passed on as it is.
    fn ready(&mut self) -> Option<Bytes> {
        let first = self.next_ready()?;
        if first.len() >= FRAME_BYTES || !self.has_ready() {
            return Some(first);
        }
        let mut frame = BytesMut::with_capacity(FRAME_BYTES);
        frame.extend_from_slice(&first);
        while frame.len() < FRAME_BYTES {
            let Some(line) = self.next_ready() else { break };
            frame.extend_from_slice(&line);
        }
        Some(frame.freeze())
    }

    fn has_ready(&self) -> bool {
        self.state.len() > 0 || self.mark_initial_end.is_some() || !self.events.is_empty()
    }
}

impl http_body::Body for WatchBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        loop {
            if let Some(frame) = this.ready() {
                return Poll::Ready(Some(Ok(Frame::data(frame))));
            }
            if this.ended {
                return Poll::Ready(None);
            }
            if let Some(converting) = &mut this.converting {
                let converted = std::task::ready!(converting.as_mut().poll(cx));
                this.converting = None;
                match converted {
                    Ok(deliveries) => this.events.extend(deliveries),
                    Err(error) => {
                        this.ended = true;
                        return Poll::Ready(Some(Ok(Frame::data(frame("ERROR", error.to_value().to_string().as_bytes())))));
                    }
                }
                continue;
            }
            // Read before the channel is drained: every event up to it is in the channel by now.
            let applied = this.cache.applied();
            match this.subscription.events.poll_recv_many(cx, &mut this.received, EVENTS_AT_ONCE) {
                Poll::Ready(0) => return Poll::Ready(None),
                Poll::Ready(_) => {
                    match this.conversion.clone() {
                        None => this.events.extend(this.received.drain(..)),
                        Some(conversion) => this.converting = Some(Box::pin(conversion.deliveries(std::mem::take(&mut this.received)))),
                    }
                    continue;
                }
                Poll::Pending => {}
            }
            std::task::ready!(this.timer.as_mut().poll(cx));
            let now = Instant::now();
            this.ended = now >= this.end;
            if !this.bookmarks {
                return Poll::Ready(None);
            }
            // A last one when the time is up: the next watch starts where this one ends.
            this.timer.as_mut().reset(this.end.min(now + BOOKMARK_EVERY));
            return Poll::Ready(Some(Ok(Frame::data(this.presentation.bookmark(applied, false)))));
        }
    }
}
