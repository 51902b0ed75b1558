//! Compression of large answers, as upstream does it: only above 128 KiB, only when asked for, at
//! the fastest level.

use std::io::Write;

use axum::body::Body;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Response, header};

/// Smaller answers are sent as they are.
pub const THRESHOLD_BYTES: usize = 128 * 1024;

/// Whether the client takes gzip.
pub fn accepted(headers: &HeaderMap) -> bool {
    let text = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(',').any(|part| part.split(';').next().is_some_and(|coding| coding.trim() == "gzip"))
}

/// An answer from bytes, compressed where that pays.
pub fn respond(bytes: Bytes, gzip: bool) -> Response<Body> {
    if !gzip || bytes.len() < THRESHOLD_BYTES {
        return Response::new(Body::from(bytes));
    }
    let mut response = Response::new(Body::from(Compressor::default().finish_with(&bytes)));
    mark(response.headers_mut());
    response
}

/// Says that the answer is compressed.
pub fn mark(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// Compresses piece by piece.
pub struct Compressor(GzEncoder<Vec<u8>>);

impl Default for Compressor {
    fn default() -> Self {
        Self(GzEncoder::new(Vec::new(), Compression::fast()))
    }
}

impl Compressor {
    /// Takes in a piece; answers what is ready, possibly nothing.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        // Writing to memory has no way to fail.
        let _ = self.0.write_all(piece);
        std::mem::take(self.0.get_mut())
    }

    /// The last piece and the rest of what is ready.
    pub fn finish_with(mut self, piece: &[u8]) -> Vec<u8> {
        let _ = self.0.write_all(piece);
        self.0.finish().unwrap_or_default()
    }
}
