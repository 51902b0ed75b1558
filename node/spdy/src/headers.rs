//! Header blocks: names and values, compressed. All blocks of one direction are one zlib stream that begins with the dictionary
//! that both sides know, so there is one [`Inflater`] or [`Deflater`] for each connection and direction.

use bytes::{BufMut as _, BytesMut};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};
use thiserror::Error;

use crate::dictionary::{DICTIONARY, DICTIONARY_ID};

/// The most bytes of one block, decompressed: Kubernetes' streams have three short headers.
pub const BLOCK_LEN_MAX: usize = 16 * 1_024;
/// The most headers in one block.
pub const HEADERS_MAX: usize = 64;
/// zlib's window: how far back a compressor may refer.
const WINDOW_LEN: usize = 32 * 1_024;
/// zlib with the largest window and a dictionary; the number is a multiple of 31, as it must be.
const ZLIB_WITH_DICTIONARY: [u8; 2] = [0x78, 0xbb];
/// An empty stored block: the end of a flush. Peers without this mark wait for more.
const FLUSHED: [u8; 5] = [0, 0, 0, 0xff, 0xff];

/// Why a block cannot be decoded. The connection is useless then: the following blocks depend on it.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum HeaderError {
    /// The first block does not begin as zlib with SPDY's dictionary.
    #[error("header block is not compressed with the dictionary of SPDY/3")]
    Dictionary,
    /// The bytes are not a zlib stream.
    #[error("header block cannot be decompressed")]
    Compressed,
    /// More than [`BLOCK_LEN_MAX`] or [`HEADERS_MAX`].
    #[error("header block is too large")]
    TooLarge,
    /// Lengths and bytes do not fit together.
    #[error("header block is broken off")]
    Broken,
}

/// The headers of a stream: lower-case names in the order in which they arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// From names and values.
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect())
    }

    /// The first value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(header, _)| header.eq_ignore_ascii_case(name));
        // NUL separates several values of one name.
        found.and_then(|(_, value)| value.split('\0').next())
    }

    fn write(&self) -> Vec<u8> {
        let mut block = Vec::new();
        block.put_u32(length(self.0.len()));
        for (name, value) in &self.0 {
            for text in [name, value] {
                block.put_u32(length(text.len()));
                block.put_slice(text.as_bytes());
            }
        }
        block
    }

    fn read(block: &[u8]) -> Result<Self, HeaderError> {
        let mut rest = block;
        let count = number(&mut rest)?;
        if count > HEADERS_MAX {
            return Err(HeaderError::TooLarge);
        }
        let mut headers = Vec::with_capacity(count);
        for _ in 0..count {
            headers.push((text(&mut rest)?.to_ascii_lowercase(), text(&mut rest)?));
        }
        if rest.is_empty() { Ok(Self(headers)) } else { Err(HeaderError::Broken) }
    }
}

fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn number(rest: &mut &[u8]) -> Result<usize, HeaderError> {
    let (first, tail) = rest.split_first_chunk::<4>().ok_or(HeaderError::Broken)?;
    *rest = tail;
    usize::try_from(u32::from_be_bytes(*first)).map_err(|_| HeaderError::TooLarge)
}

fn text(rest: &mut &[u8]) -> Result<String, HeaderError> {
    let len = number(rest)?;
    let (text, tail) = rest.split_at_checked(len).ok_or(HeaderError::Broken)?;
    *rest = tail;
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// Decodes the blocks of one direction, in order.
pub struct Inflater {
    core: Box<DecompressorOxide>,
    /// The last decompressed bytes, as a ring; before the first block it has the dictionary.
    window: Box<[u8]>,
    at: usize,
    begun: bool,
}

impl Default for Inflater {
    fn default() -> Self {
        let mut window = DICTIONARY.clone();
        let at = window.len();
        window.resize(WINDOW_LEN, 0);
        Self { core: Box::default(), window: window.into(), at, begun: false }
    }
}

impl Inflater {
    /// Reads the next block.
    pub fn read(&mut self, compressed: &[u8]) -> Result<Headers, HeaderError> {
        let body = if self.begun { compressed } else { begin(compressed)? };
        self.begun = true;
        Headers::read(&self.inflate(body)?)
    }

    fn inflate(&mut self, mut compressed: &[u8]) -> Result<Vec<u8>, HeaderError> {
        let mut block = Vec::new();
        loop {
            let (status, read, written) = decompress(&mut self.core, compressed, &mut self.window, self.at, TINFL_FLAG_HAS_MORE_INPUT);
            let fresh = self.window.get(self.at..self.at + written).ok_or(HeaderError::Compressed)?;
            if block.len() + fresh.len() > BLOCK_LEN_MAX {
                return Err(HeaderError::TooLarge);
            }
            block.extend_from_slice(fresh);
            self.at = (self.at + written) % WINDOW_LEN;
            compressed = compressed.get(read..).ok_or(HeaderError::Compressed)?;
            match status {
                // The window is full and starts again at its beginning.
                TINFLStatus::HasMoreOutput => {}
                TINFLStatus::NeedsMoreInput if compressed.is_empty() => return Ok(block),
                // An end is an error too: the stream lives as long as the connection.
                _ => return Err(HeaderError::Compressed),
            }
        }
    }
}

/// The bytes after zlib's header, which must name the dictionary.
fn begin(compressed: &[u8]) -> Result<&[u8], HeaderError> {
    let (head, rest) = compressed.split_first_chunk::<6>().ok_or(HeaderError::Dictionary)?;
    let [method, flags, id @ ..] = *head;
    let is_zlib = method & 0x0f == 8 && u16::from_be_bytes([method, flags]) % 31 == 0;
    let fits = is_zlib && flags & 0x20 != 0 && u32::from_be_bytes(id) == DICTIONARY_ID;
    if fits { Ok(rest) } else { Err(HeaderError::Dictionary) }
}

/// Encodes the blocks of one direction, in order. The headers are not worth compressing, so blocks are stored: every inflater
/// can read that, and no secret can be guessed from lengths.
#[derive(Default)]
pub struct Deflater {
    begun: bool,
}

impl Deflater {
    /// Writes the next block.
    pub fn write(&mut self, headers: &Headers, to: &mut BytesMut) {
        if !std::mem::replace(&mut self.begun, true) {
            to.put_slice(&ZLIB_WITH_DICTIONARY);
            to.put_u32(DICTIONARY_ID);
        }
        for piece in headers.write().chunks(usize::from(u16::MAX)) {
            let len = u16::try_from(piece.len()).unwrap_or_default();
            to.put_u8(0);
            to.put_u16_le(len);
            to.put_u16_le(!len);
            to.put_slice(piece);
        }
        to.put_slice(&FLUSHED);
    }
}
