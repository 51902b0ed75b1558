//! What the connection's two halves and its streams share: the open streams, and how much may be sent on each.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::frame::{Frame, Reset};

/// The window that streams begin with, by the specification.
const INITIAL_WINDOW: i64 = 64 * 1_024;

/// The state that reader, writer and streams share.
pub(crate) struct Shared {
    say: mpsc::Sender<Frame>,
    pub(crate) streams: Mutex<Streams>,
    active: Mutex<Instant>,
    /// The peer paces us.
    pub(crate) paced: AtomicBool,
    pub(crate) initial_window: AtomicI64,
    pub(crate) unread: CancellationToken,
}

/// The streams of one connection.
#[derive(Default)]
pub(crate) struct Streams {
    pub(crate) open: HashMap<u32, Slot>,
    pub(crate) last_id: u32,
    pub(crate) ended: bool,
}

/// A stream that is open in at least one direction.
pub(crate) struct Slot {
    /// The receiver of the stream's bytes; `None` when the peer has finished.
    pub(crate) chunks: Option<mpsc::UnboundedSender<Chunk>>,
    pub(crate) gone: CancellationToken,
    pub(crate) credit: Arc<Credit>,
    pub(crate) we_finished: bool,
}

impl Shared {
    pub(crate) fn new(say: mpsc::Sender<Frame>) -> Self {
        Self {
            say,
            streams: Mutex::default(),
            active: Mutex::new(Instant::now()),
            paced: AtomicBool::new(false),
            initial_window: AtomicI64::new(INITIAL_WINDOW),
            unread: CancellationToken::new(),
        }
    }

    /// Sends a short frame ahead of all data.
    pub(crate) fn say(&self, frame: Frame) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.say.try_send(frame) {
            self.unread.cancel();
        }
    }

    pub(crate) fn is_paced(&self) -> bool {
        self.paced.load(Ordering::Acquire)
    }

    pub(crate) fn we_finished(&self, id: u32) {
        let mut streams = self.streams.lock();
        if let Some(slot) = streams.open.get_mut(&id) {
            slot.we_finished = true;
            if slot.chunks.is_none() {
                streams.open.remove(&id);
            }
        }
    }

    pub(crate) fn peer_finished(&self, id: u32) {
        let mut streams = self.streams.lock();
        if let Some(slot) = streams.open.get_mut(&id) {
            if let Some(chunks) = slot.chunks.take()
                && chunks.send(Chunk::Fin).is_err()
            {
                tracing::trace!(stream = id, "nobody reads this stream to its end");
            }
            if slot.we_finished {
                streams.open.remove(&id);
            }
        }
    }

    /// Our side breaks a stream off, unless it is over.
    pub(crate) fn break_off(&self, id: u32, why: Reset) {
        if self.forget(id) {
            self.say(Frame::Reset { id, why });
        }
    }

    /// Whether the stream existed.
    pub(crate) fn forget(&self, id: u32) -> bool {
        let removed = self.streams.lock().open.remove(&id);
        if let Some(slot) = &removed {
            slot.gone.cancel();
        }
        removed.is_some()
    }

    pub(crate) fn end(&self) {
        let mut streams = self.streams.lock();
        streams.ended = true;
        for (_, slot) in streams.open.drain() {
            slot.gone.cancel();
        }
    }

    pub(crate) fn last_id(&self) -> u32 {
        self.streams.lock().last_id
    }

    pub(crate) fn touch(&self) {
        *self.active.lock() = Instant::now();
    }

    pub(crate) async fn idle(&self, timeout: Duration) {
        loop {
            let until = *self.active.lock() + timeout;
            if Instant::now() >= until {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

/// What arrived on a stream.
pub(crate) enum Chunk {
    /// Bytes, and their permit of the bytes that may wait.
    Data(Bytes, OwnedSemaphorePermit),
    /// Nothing follows.
    Fin,
}

/// How much the peer lets us send ahead on one stream. It counts only for peers that have sent window updates: Go's clients
/// never do, and a sender would wait for ever.
pub(crate) struct Credit {
    left: Mutex<i64>,
    more: Notify,
}

impl Credit {
    pub(crate) fn new(initial: i64) -> Self {
        Self { left: Mutex::new(initial), more: Notify::new() }
    }

    /// Changes the remaining window; it may be negative, when the peer shrinks its window.
    pub(crate) fn add(&self, more: i64) {
        let mut left = self.left.lock();
        *left = left.saturating_add(more);
        self.more.notify_one();
    }

    pub(crate) async fn take(&self, shared: &Shared, want: usize) -> usize {
        loop {
            if let Some(len) = self.try_take(shared.is_paced(), want) {
                return len;
            }
            self.more.notified().await;
        }
    }

    fn try_take(&self, paced: bool, want: usize) -> Option<usize> {
        let mut left = self.left.lock();
        let available = usize::try_from(*left).unwrap_or(0);
        let len = if paced { want.min(available) } else { want };
        *left = left.saturating_sub(i64::try_from(len).unwrap_or(i64::MAX));
        (len > 0).then_some(len)
    }
}
