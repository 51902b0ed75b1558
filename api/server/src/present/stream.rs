//! The body of a watch: the initial objects, then the events, with bookmarks in between. It ends when the client
//! leaves, the time is over, or the watcher is too slow.

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
use api_cache::{Beginning, Cache, Change, Delivery, FrameStatus, Object, Subscription};
use api_wire::status::ApiResult;

/// How often a client that requested bookmarks gets one: about once a minute, as upstream.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Maximum number of bytes that are combined into one frame.
const FRAME_BYTES: usize = 16 * 1024;
/// Maximum number of bytes of a line beside its object.
const LINE_BYTES: usize = 32;

/// A running watch.
pub(crate) struct WatchBody {
    presentation: Presentation,
    cache: Arc<Cache>,
    state: std::vec::IntoIter<Arc<Object>>,
    events: VecDeque<Arc<Delivery>>,
    subscription: Subscription,
    bookmarks: bool,
    /// The revision for the bookmark at the end of the initial events, until that is sent.
    mark_initial_end: Option<u64>,
    first: bool,
    end: Instant,
    timer: Pin<Box<Sleep>>,
    ended: bool,
    conversion: Option<WatchConversion>,
    /// Events that are being converted to the watch's version. Later events wait.
    converting: Option<BoxFuture<'static, ApiResult<Vec<Arc<Delivery>>>>>,
}

/// The client's options.
pub(crate) struct Wish {
    pub(crate) bookmarks: bool,
    pub(crate) mark_initial_end: bool,
    pub(crate) timeout: Duration,
    /// The conversion of objects, if there is one.
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

    /// The next lines, if they are ready.
    fn next_ready(&mut self) -> Option<Bytes> {
        if let Some(object) = self.state.next() {
            let first = std::mem::take(&mut self.first);
            let mut line = BytesMut::with_capacity(object.json_len() + LINE_BYTES);
            let written = self.presentation.write_line(Change::Added, &object, first, &mut line);
            self.end_if(written);
            return Some(line.freeze());
        }
        if let Some(revision) = self.mark_initial_end.take() {
            return Some(self.presentation.bookmark(revision, true));
        }
        let delivery = self.events.pop_front()?;
        let first = std::mem::take(&mut self.first);
        let (lines, written) = self.presentation.lines(&delivery, first);
        self.end_if(written);
        Some(lines)
    }

    /// After an object that could not be written nothing follows, because the watch would have a gap.
    fn end_if(&mut self, written: FrameStatus) {
        if written == FrameStatus::Failed {
            (self.state, self.mark_initial_end) = (Vec::new().into_iter(), None);
            self.events.clear();
            self.ended = true;
        }
    }

    /// Lines that are ready, combined up to a limit. Lines that fill a frame alone, or that come alone, are not copied:
    /// several watchers may share their bytes.
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
            // Read this before taking from the queue: every event up to this revision is in the queue by then.
            let applied = this.cache.applied();
            match this.subscription.events.poll_take(cx) {
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(written)) => {
                    match this.conversion.clone() {
                        None => this.events = written,
                        Some(conversion) => this.converting = Some(Box::pin(conversion.deliveries(written.into()))),
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
            // The last bookmark comes when the time is over: the next watch starts at this revision.
            this.timer.as_mut().reset(this.end.min(now + BOOKMARK_EVERY));
            return Poll::Ready(Some(Ok(Frame::data(this.presentation.bookmark(applied, false)))));
        }
    }
}
