//! Compression of large answers, as upstream: only above 128 KiB, only when the client accepts it, at the fastest level.

use std::io::Write;

use axum::body::Body;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Response, header};

/// Smaller answers are sent as they are.
pub const THRESHOLD_BYTES: usize = 128 * 1024;

/// Whether the client accepts gzip.
pub fn accepted(headers: &HeaderMap) -> bool {
    let text = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(',').any(|part| part.split(';').next().is_some_and(|coding| coding.trim() == "gzip"))
}

/// An answer from bytes, compressed where that is worth it.
pub fn respond(bytes: Bytes, gzip: bool) -> Response<Body> {
    if !gzip || bytes.len() < THRESHOLD_BYTES {
        return Response::new(Body::from(bytes));
    }
    let mut response = Response::new(Body::from(Compressor::default().finish_with(&bytes)));
    mark(response.headers_mut());
    response
}

/// Sets the header for a compressed answer.
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
    /// Compresses a piece; returns the bytes that are ready, possibly none.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        // Writing to memory has no way to fail.
        let _ = self.0.write_all(piece);
        std::mem::take(self.0.get_mut())
    }

    /// The last piece and the remaining bytes.
    pub fn finish_with(mut self, piece: &[u8]) -> Vec<u8> {
        let _ = self.0.write_all(piece);
        self.0.finish().unwrap_or_default()
    }
}
