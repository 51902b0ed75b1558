//! The server's side of a connection: the peer opens streams, bytes flow in both directions on each, until either side closes
//! it. One future drives all of it ([`serve`]) and never buffers more than its [`Limits`].
//!
//! A stream with a slow reader delays only itself as long as the peer respects its window or all buffered bytes stay within
//! [`Limits::waiting_len_max`]. Go's clients respect no window; what they send beyond the limit stays in the socket, since
//! discarding it would break an upload that is only slow.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::frame::{DATA_LEN_MAX, Decoder, Encoder, Frame, FrameError, Reset};
use crate::headers::Headers;
use crate::shared::{Chunk, Credit, Shared, Slot};
use crate::stream::{Receiving, Sending, Stream};

/// The bytes that one read of the socket takes.
const READ_LEN: usize = 64 * 1_024;
/// The bytes of one write, when so many wait.
const WRITE_LEN: usize = 64 * 1_024;
/// Data frames that wait to be written, of all streams together.
const FRAMES_MAX: usize = 16;
/// Answers that wait to be written: a peer that sends requests and never reads is disconnected.
const ANSWERS_MAX: usize = 256;
/// Streams that wait to be accepted.
const OFFERS_MAX: usize = 64;
/// The memory of a waiting piece of data beside its bytes.
const PIECE_COST: usize = 128;
/// How long the peer may take to close the connection after we have announced the end.
const LINGER: Duration = Duration::from_secs(5);

/// The limits of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The highest number of open streams.
    pub streams_max: usize,
    /// Received bytes that wait for their readers, of all streams together.
    pub waiting_len_max: usize,
    /// How long nothing may happen on it; pings are nothing.
    pub idle_timeout: Duration,
}

impl Default for Limits {
    /// Upstream's idle timeout, and room for a few hundred connections in one forward.
    fn default() -> Self {
        Self { streams_max: 1_024, waiting_len_max: 8 << 20, idle_timeout: Duration::from_secs(4 * 3_600) }
    }
}

/// Why a connection ended before its time.
#[derive(Debug, Error)]
pub enum SpdyError {
    /// The socket failed.
    #[error("reading or writing the connection")]
    Io(#[from] io::Error),
    /// The peer sent bytes that are not SPDY.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer sends requests and does not read the answers.
    #[error("the peer reads no answers")]
    Unread,
    /// Nothing happened for too long.
    #[error("nothing happened for too long")]
    Idle,
}

/// A connection as its owner sees it.
pub struct Connection {
    offers: mpsc::Receiver<Stream>,
    frames: mpsc::Sender<Frame>,
    shared: Arc<Shared>,
}

impl Connection {
    /// The next stream that the peer opens; it has been accepted. `None` when the connection has ended. Cancel-safe.
    pub async fn accept(&mut self) -> Option<Stream> {
        self.offers.recv().await
    }

    /// Ends the connection after all that waits to be sent.
    pub async fn close(self) {
        let last = Frame::GoAway { last: self.shared.last_id() };
        if self.frames.send(last).await.is_err() {
            tracing::debug!("the connection has ended already");
        }
    }
}

/// The server's side over a byte stream: the owner's handle, and the future that does the work and
/// resolves when the connection has ended. Streams are lost when the future is dropped.
pub fn serve<T>(io: T, limits: Limits) -> (Connection, impl Future<Output = Result<(), SpdyError>> + Send)
where
    T: AsyncRead + AsyncWrite + Send + 'static,
{
    let (say, answers) = mpsc::channel(ANSWERS_MAX);
    let (frames, queued) = mpsc::channel(FRAMES_MAX);
    let (offer, offers) = mpsc::channel(OFFERS_MAX);
    let shared = Arc::new(Shared::new(say));
    let connection = Connection { offers, frames: frames.clone(), shared: shared.clone() };
    let reader = Reader {
        shared: shared.clone(),
        offer,
        frames: frames.downgrade(),
        room: Arc::new(Semaphore::new(limits.waiting_len_max)),
        limits,
        decoder: Decoder::default(),
    };
    drop(frames);
    let writer = Writer { shared: shared.clone(), answers, queued, encoder: Encoder::default() };
    (connection, drive(io, reader, writer, shared))
}

async fn drive<T: AsyncRead + AsyncWrite + Send>(io: T, reader: Reader, writer: Writer, shared: Arc<Shared>) -> Result<(), SpdyError> {
    let _ends_streams = EndStreams(shared.clone());
    let (from, to) = tokio::io::split(io);
    let (mut reading, mut writing) = (std::pin::pin!(reader.run(from)), std::pin::pin!(writer.run(to)));
    tokio::select! {
        ended = &mut reading => ended,
        () = shared.unread.cancelled() => Err(SpdyError::Unread),
        written = &mut writing => {
            if let Err(error) = written {
                // The peer reads no more. What it sent before still counts.
                reading.await?;
                return Err(error);
            }
            // Closing at once could lose what the peer has not read yet.
            tokio::time::timeout(LINGER, reading).await.unwrap_or(Ok(()))
        }
    }
}

/// No stream outlives its connection, also when the connection is cut off.
struct EndStreams(Arc<Shared>);

impl Drop for EndStreams {
    fn drop(&mut self) {
        self.0.end();
    }
}

struct Reader {
    shared: Arc<Shared>,
    offer: mpsc::Sender<Stream>,
    /// Weak: the queue ends when only this side could still send.
    frames: mpsc::WeakSender<Frame>,
    room: Arc<Semaphore>,
    limits: Limits,
    decoder: Decoder,
}

impl Reader {
    async fn run(mut self, mut from: impl AsyncRead + Unpin) -> Result<(), SpdyError> {
        let mut buffer = BytesMut::new();
        loop {
            while let Some(frame) = self.decoder.next(&mut buffer)? {
                if !matches!(frame, Frame::Ping(_)) {
                    self.shared.touch();
                }
                self.take(frame).await;
            }
            buffer.reserve(READ_LEN);
            let read = tokio::select! {
                read = from.read_buf(&mut buffer) => read?,
                () = self.shared.idle(self.limits.idle_timeout) => return Err(SpdyError::Idle),
            };
            if read == 0 {
                return Ok(());
            }
        }
    }

    async fn take(&self, frame: Frame) {
        match frame {
            Frame::SynStream { id, fin, headers } => self.open(id, fin, headers),
            Frame::Data { id, fin, bytes } => self.data(id, fin, bytes).await,
            Frame::Headers { id, fin: true, .. } => self.shared.peer_finished(id),
            Frame::Reset { id, .. } => {
                self.shared.forget(id);
            }
            // Even ids are ours, and we send no pings.
            Frame::Ping(id) if id % 2 == 1 => self.shared.say(Frame::Ping(id)),
            Frame::Settings { initial_window: Some(bytes) } => self.pace(bytes.into()),
            Frame::WindowUpdate { id, more } => {
                self.shared.paced.store(true, Ordering::Release);
                if let Some(slot) = self.shared.streams.lock().open.get(&id) {
                    slot.credit.add(more.into());
                }
            }
            Frame::Headers { .. } | Frame::SynReply { .. } | Frame::Ping(_) | Frame::Settings { .. } | Frame::GoAway { .. } => {}
        }
    }

    /// The peer's windows begin with so many bytes from now on, those of open streams included.
    fn pace(&self, initial: i64) {
        let before = self.shared.initial_window.swap(initial, Ordering::AcqRel);
        self.shared.paced.store(true, Ordering::Release);
        for slot in self.shared.streams.lock().open.values() {
            slot.credit.add(initial.saturating_sub(before));
        }
    }

    fn open(&self, id: u32, fin: bool, headers: Headers) {
        let stream = match self.admit(id) {
            Ok((chunks, sending)) => {
                let receiving = Receiving { id, chunks, shared: self.shared.clone(), unreported: 0, ended: false };
                Stream { id, headers, receiving, sending }
            }
            Err(why) => return self.shared.say(Frame::Reset { id, why }),
        };
        self.shared.say(Frame::SynReply { id, fin: false, headers: Headers::default() });
        if fin {
            self.shared.peer_finished(id);
        }
        if let Err(mpsc::error::TrySendError::Full(stream) | mpsc::error::TrySendError::Closed(stream)) = self.offer.try_send(stream) {
            stream.sending.reset(Reset::RefusedStream);
        }
    }

    /// Registers a new stream, if the limit allows one.
    fn admit(&self, id: u32) -> Result<(mpsc::UnboundedReceiver<Chunk>, Sending), Reset> {
        let mut streams = self.shared.streams.lock();
        // A client's ids are odd and grow.
        if id.is_multiple_of(2) || id <= streams.last_id {
            return Err(Reset::ProtocolError);
        }
        streams.last_id = id;
        let frames = self.frames.upgrade().ok_or(Reset::RefusedStream)?;
        if streams.open.len() >= self.limits.streams_max || streams.ended {
            return Err(Reset::RefusedStream);
        }
        // `room` limits what waits in it.
        let (sender, chunks) = mpsc::unbounded_channel();
        let gone = CancellationToken::new();
        let credit = Arc::new(Credit::new(self.shared.initial_window.load(Ordering::Acquire)));
        streams.open.insert(id, Slot { chunks: Some(sender), gone: gone.clone(), credit: credit.clone(), we_finished: false });
        Ok((chunks, Sending { id, frames, shared: self.shared.clone(), gone, credit, open: true }))
    }

    async fn data(&self, id: u32, fin: bool, bytes: Bytes) {
        let chunks = {
            let streams = self.shared.streams.lock();
            let found = streams.open.get(&id).map(|slot| slot.chunks.clone());
            match found {
                Some(chunks) => chunks,
                // Frames of a closed stream may still arrive.
                None if id <= streams.last_id => return,
                None => return self.shared.say(Frame::Reset { id, why: Reset::InvalidStream }),
            }
        };
        let Some(chunks) = chunks else {
            return self.shared.break_off(id, Reset::ProtocolError);
        };
        if !bytes.is_empty() && !chunks.is_closed() {
            let cost = (bytes.len() + PIECE_COST).min(self.limits.waiting_len_max);
            let share = tokio::select! {
                share = self.room.clone().acquire_many_owned(u32::try_from(cost).unwrap_or(u32::MAX)) => share,
                // The stream has no reader any more.
                () = chunks.closed() => return if fin { self.shared.peer_finished(id) },
            };
            // The semaphore is never closed.
            if let Ok(share) = share
                && chunks.send(Chunk::Data(bytes, share)).is_err()
            {
                tracing::trace!(stream = id, "nobody reads this stream");
            }
        }
        if fin {
            self.shared.peer_finished(id);
        }
    }
}

struct Writer {
    shared: Arc<Shared>,
    answers: mpsc::Receiver<Frame>,
    queued: mpsc::Receiver<Frame>,
    encoder: Encoder,
}

impl Writer {
    async fn run(mut self, mut to: impl AsyncWrite + Unpin) -> Result<(), SpdyError> {
        let mut buffer = BytesMut::with_capacity(WRITE_LEN + DATA_LEN_MAX);
        loop {
            let first = tokio::select! {
                biased;
                answer = self.answers.recv() => answer,
                frame = self.queued.recv() => frame,
            };
            // No sender is left.
            let first = first.unwrap_or_else(|| Frame::GoAway { last: self.shared.last_id() });
            let mut over = self.put(&first, &mut buffer);
            while !over && buffer.len() < WRITE_LEN {
                let Ok(next) = self.answers.try_recv().or_else(|_| self.queued.try_recv()) else { break };
                over = self.put(&next, &mut buffer);
            }
            to.write_all(&buffer).await?;
            to.flush().await?;
            buffer.clear();
            if over {
                to.shutdown().await?;
                return Ok(());
            }
        }
    }

    /// Whether it is the last frame.
    fn put(&mut self, frame: &Frame, buffer: &mut BytesMut) -> bool {
        if matches!(frame, Frame::Data { .. }) {
            self.shared.touch();
        }
        self.encoder.put(frame, buffer);
        matches!(frame, Frame::GoAway { .. })
    }
}
