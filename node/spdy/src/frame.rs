//! Frames as bytes. Pure: a [`Decoder`] takes frames from a buffer as bytes arrive, an [`Encoder`] appends them to one. A data
//! frame, which may be 16 MiB long, is passed on in pieces as they arrive, so that no frame is buffered as a whole; every other
//! frame is short or rejected.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use thiserror::Error;

use crate::headers::{Deflater, HeaderError, Headers, Inflater};

/// Longest frame that is not data.
pub const CONTROL_LEN_MAX: usize = 16 * 1_024;
/// The longest piece of a data frame that is passed on, and the longest data frame that is written.
pub const DATA_LEN_MAX: usize = 32 * 1_024;
/// The length of a frame's header.
const HEAD_LEN: usize = 8;
/// The version number of SPDY/3.1.
const VERSION: u16 = 3;
/// Stream ids have 31 bits; the first bit of a frame distinguishes data from control frames.
const ID_MASK: u32 = 0x7fff_ffff;
/// The flag of the last frame that its sender sends on the stream.
const FIN: u8 = 1;
/// The only setting that is used here.
const INITIAL_WINDOW: u32 = 7;

/// Why a stream is broken off (`RST_STREAM`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the specification's names")]
pub enum Reset {
    ProtocolError,
    InvalidStream,
    RefusedStream,
    Cancel,
    FlowControlError,
    /// Any other number.
    Other(u32),
}

impl Reset {
    const CODES: [(Self, u32); 5] =
        [(Self::ProtocolError, 1), (Self::InvalidStream, 2), (Self::RefusedStream, 3), (Self::Cancel, 5), (Self::FlowControlError, 7)];

    fn code(self) -> u32 {
        match self {
            Self::Other(code) => code,
            named => Self::CODES.iter().find(|(reset, _)| *reset == named).map_or(1, |(_, code)| *code),
        }
    }

    fn from_code(code: u32) -> Self {
        Self::CODES.iter().find(|(_, number)| *number == code).map_or(Self::Other(code), |(reset, _)| *reset)
    }
}

/// A frame, or a piece of a data frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Opens a stream.
    SynStream {
        /// Its id.
        id: u32,
        /// Nothing follows from its opener.
        fin: bool,
        /// The headers of the stream.
        headers: Headers,
    },
    /// Agrees to a stream.
    SynReply {
        /// Its id.
        id: u32,
        /// An empty one has no effect.
        fin: bool,
        /// The answer's headers.
        headers: Headers,
    },
    /// Further headers.
    Headers {
        /// The stream.
        id: u32,
        /// Nothing follows from their sender.
        fin: bool,
        /// The headers.
        headers: Headers,
    },
    /// Breaks a stream off.
    Reset {
        /// The stream.
        id: u32,
        /// Why.
        why: Reset,
    },
    /// The initial window of the sender's streams from now on; `None` for settings of other things.
    Settings {
        /// In bytes.
        initial_window: Option<u32>,
    },
    /// To be sent back, when its id is of the other side's kind.
    Ping(u32),
    /// The sender accepts no further streams.
    GoAway {
        /// The last stream that was.
        last: u32,
    },
    /// More may be sent on a stream.
    WindowUpdate {
        /// The stream.
        id: u32,
        /// Bytes more.
        more: u32,
    },
    /// Bytes on a stream.
    Data {
        /// The stream.
        id: u32,
        /// Nothing follows from their sender.
        fin: bool,
        /// The bytes.
        bytes: Bytes,
    },
}

/// Why bytes are not frames. Decoding cannot continue after one.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum FrameError {
    /// Another version, or another protocol.
    #[error("version {0} of SPDY is not spoken here")]
    Version(u16),
    /// More than [`CONTROL_LEN_MAX`].
    #[error("a frame of {0} bytes is too long")]
    TooLong(usize),
    /// The frame has fewer bytes than its kind requires, or invalid ones.
    #[error("a frame of kind {0} is malformed")]
    Malformed(u16),
    /// Headers that cannot be read.
    #[error(transparent)]
    Headers(#[from] HeaderError),
}

/// The kinds of control frames.
mod kind {
    pub(super) const SYN_STREAM: u16 = 1;
    pub(super) const SYN_REPLY: u16 = 2;
    pub(super) const RST_STREAM: u16 = 3;
    pub(super) const SETTINGS: u16 = 4;
    pub(super) const PING: u16 = 6;
    pub(super) const GOAWAY: u16 = 7;
    pub(super) const HEADERS: u16 = 8;
    pub(super) const WINDOW_UPDATE: u16 = 9;
}

/// Decodes frames from bytes.
#[derive(Default)]
pub struct Decoder {
    inflater: Inflater,
    data: Option<OpenData>,
}

/// A data frame with bytes that have not arrived yet.
struct OpenData {
    id: u32,
    fin: bool,
    left: usize,
}

impl Decoder {
    /// The next frame, or piece of one; `None` when more bytes are needed.
    pub fn next(&mut self, from: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        loop {
            if let Some(open) = &self.data {
                return Ok(if from.is_empty() && open.left > 0 { None } else { self.piece(from) });
            }
            let Some(head) = from.first_chunk::<HEAD_LEN>() else { return Ok(None) };
            let [a, b, c, d, flags, x, y, z] = *head;
            let (word, len) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([0, x, y, z]));
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            if word & !ID_MASK == 0 {
                from.advance(HEAD_LEN);
                // An empty data frame has a meaning only through its flag.
                if len > 0 || flags & FIN != 0 {
                    self.data = Some(OpenData { id: word, fin: flags & FIN != 0, left: len });
                }
                continue;
            }
            let (version, kind) = (u16::from_be_bytes([a & 0x7f, b]), u16::from_be_bytes([c, d]));
            if version != VERSION {
                return Err(FrameError::Version(version));
            }
            if len > CONTROL_LEN_MAX {
                return Err(FrameError::TooLong(len));
            }
            if from.len() < HEAD_LEN + len {
                return Ok(None);
            }
            from.advance(HEAD_LEN);
            let body = from.split_to(len);
            // Frames of unknown kinds are skipped, as the specification requires.
            if let Some(frame) = self.control(kind, flags & FIN != 0, &body)? {
                return Ok(Some(frame));
            }
        }
    }

    fn piece(&mut self, from: &mut BytesMut) -> Option<Frame> {
        let open = self.data.as_mut()?;
        let len = open.left.min(from.len()).min(DATA_LEN_MAX);
        // A copy: a piece that waits for its reader must not keep the whole buffer.
        let bytes = Bytes::copy_from_slice(&from.split_to(len));
        open.left -= bytes.len();
        let (id, over) = (open.id, open.left == 0);
        let fin = open.fin && over;
        if over {
            self.data = None;
        }
        Some(Frame::Data { id, fin, bytes })
    }

    fn control(&mut self, kind: u16, fin: bool, body: &[u8]) -> Result<Option<Frame>, FrameError> {
        let malformed = || FrameError::Malformed(kind);
        let mut rest = body;
        let mut word = || -> Result<u32, FrameError> {
            let (first, tail) = rest.split_first_chunk::<4>().ok_or(FrameError::Malformed(kind))?;
            rest = tail;
            Ok(u32::from_be_bytes(*first))
        };
        Ok(Some(match kind {
            kind::SYN_STREAM => {
                let (id, _associated) = (word()? & ID_MASK, word()?);
                // Priority and slot are not used.
                let block = rest.get(2..).ok_or_else(malformed)?;
                Frame::SynStream { id, fin, headers: self.inflater.read(block)? }
            }
            kind::SYN_REPLY => {
                let id = word()? & ID_MASK;
                Frame::SynReply { id, fin, headers: self.inflater.read(rest)? }
            }
            kind::HEADERS => {
                let id = word()? & ID_MASK;
                Frame::Headers { id, fin, headers: self.inflater.read(rest)? }
            }
            kind::RST_STREAM => Frame::Reset { id: word()? & ID_MASK, why: Reset::from_code(word()?) },
            kind::SETTINGS => {
                let count = word()?;
                let mut initial_window = None;
                for _ in 0..count {
                    let (id, value) = (word()? & 0x00ff_ffff, word()?);
                    if id == INITIAL_WINDOW {
                        initial_window = Some(value & ID_MASK);
                    }
                }
                Frame::Settings { initial_window }
            }
            kind::PING => Frame::Ping(word()?),
            kind::GOAWAY => Frame::GoAway { last: word()? & ID_MASK },
            kind::WINDOW_UPDATE => Frame::WindowUpdate { id: word()? & ID_MASK, more: word()? & ID_MASK },
            _ => return Ok(None),
        }))
    }
}

/// Puts frames into bytes.
#[derive(Default)]
pub struct Encoder {
    deflater: Deflater,
}

impl Encoder {
    /// Appends a frame. Data longer than [`DATA_LEN_MAX`] becomes several.
    pub fn put(&mut self, frame: &Frame, to: &mut BytesMut) {
        match frame {
            Frame::Data { id, fin, bytes } => put_data(*id, *fin, bytes, to),
            Frame::SynStream { id, fin, headers } => {
                self.put_headers(kind::SYN_STREAM, *fin, &[*id, 0], &[0, 0], headers, to);
            }
            Frame::SynReply { id, fin, headers } => self.put_headers(kind::SYN_REPLY, *fin, &[*id], &[], headers, to),
            Frame::Headers { id, fin, headers } => self.put_headers(kind::HEADERS, *fin, &[*id], &[], headers, to),
            Frame::Reset { id, why } => put_words(kind::RST_STREAM, &[*id, why.code()], to),
            Frame::Settings { initial_window: None } => put_words(kind::SETTINGS, &[0], to),
            Frame::Settings { initial_window: Some(bytes) } => put_words(kind::SETTINGS, &[1, INITIAL_WINDOW, *bytes], to),
            Frame::Ping(id) => put_words(kind::PING, &[*id], to),
            Frame::GoAway { last } => put_words(kind::GOAWAY, &[*last, 0], to),
            Frame::WindowUpdate { id, more } => put_words(kind::WINDOW_UPDATE, &[*id, *more], to),
        }
    }

    fn put_headers(&mut self, kind: u16, fin: bool, words: &[u32], more: &[u8], headers: &Headers, to: &mut BytesMut) {
        let mut body = BytesMut::new();
        words.iter().for_each(|word| body.put_u32(*word));
        body.put_slice(more);
        self.deflater.write(headers, &mut body);
        put_control(kind, if fin { FIN } else { 0 }, &body, to);
    }
}

fn put_words(kind: u16, words: &[u32], to: &mut BytesMut) {
    let body: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    put_control(kind, 0, &body, to);
}

fn put_control(kind: u16, flags: u8, body: &[u8], to: &mut BytesMut) {
    to.put_u16(0x8000 | VERSION);
    to.put_u16(kind);
    put_length(flags, body.len(), to);
    to.put_slice(body);
}

fn put_data(id: u32, fin: bool, bytes: &[u8], to: &mut BytesMut) {
    let mut pieces = bytes.chunks(DATA_LEN_MAX).peekable();
    if pieces.peek().is_none() {
        to.put_u32(id & ID_MASK);
        put_length(if fin { FIN } else { 0 }, 0, to);
    }
    while let Some(piece) = pieces.next() {
        let last = fin && pieces.peek().is_none();
        to.put_u32(id & ID_MASK);
        put_length(if last { FIN } else { 0 }, piece.len(), to);
        to.put_slice(piece);
    }
}

/// Flags, and a length of 24 bits.
fn put_length(flags: u8, len: usize, to: &mut BytesMut) {
    let len = u32::try_from(len).unwrap_or(u32::MAX) & 0x00ff_ffff;
    to.put_u32(u32::from(flags) << 24 | len);
}
