//! The frames of HTTP/2 (RFC 9113) that a server of small unary calls needs. Headers are not decoded: plugins written in Go send the path
//! of the socket as `:authority`, which the HTTP library rejects as malformed, and the socket has one method.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The bytes of a frame that every peer accepts, and the most that this one does.
const FRAME_LEN_MAX: usize = 16_384;

/// The types of frames.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0x0;
    pub(crate) const HEADERS: u8 = 0x1;
    pub(crate) const RST_STREAM: u8 = 0x3;
    pub(crate) const SETTINGS: u8 = 0x4;
    pub(crate) const PUSH_PROMISE: u8 = 0x5;
    pub(crate) const PING: u8 = 0x6;
    pub(crate) const WINDOW_UPDATE: u8 = 0x8;
    pub(crate) const CONTINUATION: u8 = 0x9;
}

/// The flags of frames.
pub(crate) mod flag {
    pub(crate) const ACK: u8 = 0x1;
    pub(crate) const END_STREAM: u8 = 0x1;
    pub(crate) const END_HEADERS: u8 = 0x4;
    pub(crate) const PADDED: u8 = 0x8;
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    pub(crate) fn new(kind: u8, flags: u8, stream: u32, payload: Vec<u8>) -> Self {
        Self { kind, flags, stream, payload }
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload of a DATA frame without its padding; `None` when there is more padding than payload.
    pub(crate) fn data(&self) -> Option<&[u8]> {
        if !self.has(flag::PADDED) {
            return Some(&self.payload);
        }
        let (padding, rest) = self.payload.split_first()?;
        rest.get(..rest.len().checked_sub(usize::from(*padding))?)
    }
}

pub(crate) fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Reads what a client sends first.
pub(crate) async fn read_preface(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let mut preface = [0; PREFACE.len()];
    stream.read_exact(&mut preface).await?;
    if &preface == PREFACE { Ok(()) } else { Err(malformed("no HTTP/2 client")) }
}

/// Reads the next frame; `None` at the end.
pub(crate) async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Frame>> {
    let a = match stream.read_u8().await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        first => first?,
    };
    let mut header = [0; 8];
    stream.read_exact(&mut header).await?;
    let [b, c, kind, flags, s0, s1, s2, s3] = header;
    let len = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or(usize::MAX);
    if len > FRAME_LEN_MAX {
        return Err(malformed("a frame is too large"));
    }
    let mut payload = vec![0; len];
    stream.read_exact(&mut payload).await?;
    // The first bit is reserved.
    let number = u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]);
    Ok(Some(Frame { kind, flags, stream: number, payload }))
}

/// Writes frames at once.
pub(crate) async fn write_frames(stream: &mut (impl AsyncWrite + Unpin), frames: &[Frame]) -> io::Result<()> {
    let mut bytes = Vec::new();
    for frame in frames {
        let len = u32::try_from(frame.payload.len()).unwrap_or(u32::MAX).to_be_bytes();
        bytes.extend(len.into_iter().skip(1));
        bytes.extend([frame.kind, frame.flags]);
        bytes.extend(frame.stream.to_be_bytes());
        bytes.extend(&frame.payload);
    }
    stream.write_all(&bytes).await?;
    stream.flush().await
}

/// A header field that is not to be remembered (RFC 7541, 6.2.2), without Huffman's code.
pub(crate) fn header(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        push_len(&mut bytes, text.len());
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// The length of a text (RFC 7541, 5.1, with a prefix of 7 bits).
fn push_len(bytes: &mut Vec<u8>, len: usize) {
    const PREFIX_MAX: usize = 0x7f;
    let low = |number: usize| u8::try_from(number & PREFIX_MAX).unwrap_or_default();
    if len < PREFIX_MAX {
        return bytes.push(low(len));
    }
    bytes.push(0x7f);
    let mut rest = len - PREFIX_MAX;
    while rest > PREFIX_MAX {
        bytes.push(low(rest) | 0x80);
        rest >>= 7;
    }
    bytes.push(low(rest));
}
