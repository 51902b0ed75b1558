//! One stream: its receiving and its sending half, each on its own.

use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::frame::{DATA_LEN_MAX, Frame, Reset};
use crate::headers::Headers;
use crate::shared::{Chunk, Credit, Shared};

/// After so many bytes are read, the sender gets a window update for as many more.
const REPORT_LEN: usize = 32 * 1_024;

/// The stream was broken off, or its connection ended.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the stream was broken off")]
pub struct Lost;

/// A stream that the peer has opened.
pub struct Stream {
    /// Its id.
    pub id: u32,
    /// The headers of the stream.
    pub headers: Headers,
    /// The receiving half.
    pub receiving: Receiving,
    /// The sending half.
    pub sending: Sending,
}

/// The receiving half. When it is dropped, further bytes are discarded.
pub struct Receiving {
    pub(crate) id: u32,
    pub(crate) chunks: mpsc::UnboundedReceiver<Chunk>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) unreported: usize,
    pub(crate) ended: bool,
}

impl Receiving {
    /// The next bytes, never empty; `None` at the end. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Lost> {
        if self.ended {
            return Ok(None);
        }
        match self.chunks.recv().await {
            Some(Chunk::Data(bytes, share)) => {
                drop(share);
                self.report(bytes.len());
                Ok(Some(bytes))
            }
            Some(Chunk::Fin) => {
                self.ended = true;
                Ok(None)
            }
            None => Err(Lost),
        }
    }

    fn report(&mut self, len: usize) {
        self.unreported += len;
        if self.unreported >= REPORT_LEN {
            let more = u32::try_from(self.unreported).unwrap_or_default();
            self.shared.say(Frame::WindowUpdate { id: self.id, more });
            self.unreported = 0;
        }
    }
}

/// Our half of a stream. Dropped before [`Sending::finish`], the stream is broken off.
pub struct Sending {
    pub(crate) id: u32,
    pub(crate) frames: mpsc::Sender<Frame>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) gone: CancellationToken,
    pub(crate) credit: Arc<Credit>,
    pub(crate) open: bool,
}

impl Sending {
    /// Sends bytes; waits while the peer's window is empty.
    pub async fn send(&mut self, bytes: Bytes) -> Result<(), Lost> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let want = rest.len().min(DATA_LEN_MAX);
            let len = tokio::select! {
                biased;
                () = self.gone.cancelled() => return Err(Lost),
                len = self.credit.take(&self.shared, want) => len,
            };
            self.queue(Frame::Data { id: self.id, fin: false, bytes: rest.split_to(len) }).await?;
        }
        Ok(())
    }

    /// Ends the sending half.
    pub async fn finish(mut self) -> Result<(), Lost> {
        self.queue(Frame::Data { id: self.id, fin: true, bytes: Bytes::new() }).await?;
        self.open = false;
        self.shared.we_finished(self.id);
        Ok(())
    }

    /// Breaks the stream off for a reason.
    pub fn reset(mut self, why: Reset) {
        self.open = false;
        self.shared.break_off(self.id, why);
    }

    /// Resolves when the stream is broken off or its connection has ended.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.gone.clone().cancelled_owned()
    }

    async fn queue(&self, frame: Frame) -> Result<(), Lost> {
        tokio::select! {
            biased;
            () = self.gone.cancelled() => Err(Lost),
            sent = self.frames.send(frame) => sent.map_err(|_| Lost),
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if self.open {
            self.shared.break_off(self.id, Reset::Cancel);
        }
    }
}
