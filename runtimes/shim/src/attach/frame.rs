//! Frames between a shim and its attached clients. Pure.

use std::io;

/// The longest payload; a sender splits longer ones and a receiver rejects them.
pub(super) const LEN_MAX: usize = 64 << 10;
/// Kind and length.
const HEAD_LEN: usize = 5;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bytes for the container.
    Stdin,
    /// Bytes of its stdout, or of its terminal.
    Stdout,
    /// Bytes of its stderr.
    Stderr,
    /// The client is going to send stdin.
    WithStdin,
    /// The terminal's new size: columns and rows in two bytes each.
    Resize,
    /// The client sends no stdin any more.
    StdinEnd,
}

const KINDS: [(Kind, u8); 6] =
    [(Kind::Stdin, 0), (Kind::Stdout, 1), (Kind::Stderr, 2), (Kind::WithStdin, 3), (Kind::Resize, 4), (Kind::StdinEnd, 5)];

/// Appends bytes as frames of a kind; one empty frame when there are no bytes.
pub(super) fn put(kind: Kind, bytes: &[u8], to: &mut impl Extend<u8>) {
    let code = KINDS.iter().find(|(listed, _)| *listed == kind).map_or(u8::MAX, |(_, code)| *code);
    let mut pieces = bytes.chunks(LEN_MAX);
    let mut piece = pieces.next().unwrap_or_default();
    loop {
        to.extend([code]);
        to.extend(u32::try_from(piece.len()).unwrap_or_default().to_be_bytes());
        to.extend(piece.iter().copied());
        match pieces.next() {
            Some(next) => piece = next,
            None => return,
        }
    }
}

/// Decodes frames from arriving bytes.
#[derive(Default)]
pub(super) struct Frames(Vec<u8>);

impl Frames {
    /// Adds bytes that have arrived.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next whole frame.
    pub(super) fn next(&mut self) -> io::Result<Option<(Kind, Vec<u8>)>> {
        let Some((head, rest)) = self.0.split_first_chunk::<HEAD_LEN>() else { return Ok(None) };
        let [code, len @ ..] = *head;
        let len = usize::try_from(u32::from_be_bytes(len)).unwrap_or(usize::MAX);
        let kind = KINDS.iter().find(|(_, number)| *number == code).map(|(kind, _)| *kind);
        let Some(kind) = kind.filter(|_| len <= LEN_MAX) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a frame of an attached client"));
        };
        let Some(payload) = rest.get(..len) else { return Ok(None) };
        let payload = payload.to_vec();
        self.0.drain(..HEAD_LEN + len);
        Ok(Some((kind, payload)))
    }
}
