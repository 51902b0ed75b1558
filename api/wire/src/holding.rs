//! A body that keeps a value alive as long as it is sent, however it ends.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

/// The body, and the value that is dropped with it.
#[derive(Debug)]
pub struct Holding<T> {
    body: Body,
    _guard: T,
}

impl<T> Holding<T> {
    /// `body`, with the value that is dropped when it ends.
    pub fn new(body: Body, guard: T) -> Self {
        Self { body, _guard: guard }
    }
}

impl<T: Unpin> http_body::Body for Holding<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
