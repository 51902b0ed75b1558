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

use super::Presentation;
use super::conversion::WatchConversion;
use api_cache::{Beginning, Cache, Change, Delivery, Object, Subscription, Told};
use api_wire::status::ApiResult;

/// How often a client that asked for bookmarks gets one: upstream's about once a minute.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Bytes that are put together in one frame.
const FRAME_BYTES: usize = 16 * 1024;
/// What a line has beside its object, at most.
const LINE_BYTES: usize = 32;

/// A running watch.
pub(crate) struct WatchBody {
    presentation: Presentation,
    cache: Arc<Cache>,
    state: std::vec::IntoIter<Arc<Object>>,
    events: VecDeque<Arc<Delivery>>,
    subscription: Subscription,
    bookmarks: bool,
    /// Whether the end of the initial events is still to be marked, and with which revision.
    mark_initial_end: Option<u64>,
    first: bool,
    end: Instant,
    timer: Pin<Box<Sleep>>,
    ended: bool,
    conversion: Option<WatchConversion>,
    /// Events on their way into the watch's version; nothing overtakes them.
    converting: Option<BoxFuture<'static, ApiResult<Vec<Arc<Delivery>>>>>,
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

    /// The next lines that are ready without waiting.
    fn next_ready(&mut self) -> Option<Bytes> {
        if let Some(object) = self.state.next() {
            let first = std::mem::take(&mut self.first);
            let mut line = BytesMut::with_capacity(object.json_len() + LINE_BYTES);
            let told = self.presentation.write_line(Change::Added, &object, first, &mut line);
            self.end_if(told);
            return Some(line.freeze());
        }
        if let Some(revision) = self.mark_initial_end.take() {
            return Some(self.presentation.bookmark(revision, true));
        }
        let delivery = self.events.pop_front()?;
        let first = std::mem::take(&mut self.first);
        let (lines, told) = self.presentation.lines(&delivery, first);
        self.end_if(told);
        Some(lines)
    }

    /// After what could not be told nothing follows: the watch would have a gap.
    fn end_if(&mut self, told: Told) {
        if told == Told::Failed {
            (self.state, self.mark_initial_end) = (Vec::new().into_iter(), None);
            self.events.clear();
            self.ended = true;
        }
    }

    /// Lines that are ready, put together up to a bound. What many are told alike is passed on as it is.
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
                        return Poll::Ready(Some(Ok(Frame::data(this.presentation.failure(&error)))));
                    }
                }
                continue;
            }
            // Read before the queue is emptied: every event up to it is in the queue by now.
            let applied = this.cache.applied();
            match this.subscription.events.poll_take(cx) {
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(told)) => {
                    match this.conversion.clone() {
                        None => this.events = told,
                        Some(conversion) => this.converting = Some(Box::pin(conversion.deliveries(told.into()))),
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
