//! Requests that are answered before their body was read: 401, 404, 405, 413 and others.
//!
//! HTTP/2 lets a server answer early and then reset the stream with `NO_ERROR` (RFC 9113, section 8.1). Not every
//! client supports that: the curl of Debian 12 drops the answer with the stream. So the server reads and discards the
//! rest of the body while it sends the answer, up to a limit, and ends the answer only then.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::{Buf, Bytes};
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::Sleep;

/// How many bytes of an unwanted body are read, and for how long after the answer. Twice the maximum length of an
/// accepted body, so that a body that is only a little too long is still drained.
const BYTES_MAX: usize = 2 * api_wire::body::BODY_BYTES_MAX;
const TIME_MAX: Duration = Duration::from_secs(2);

/// The place of a body that was dropped before its end.
#[derive(Debug, Default, Clone)]
pub(super) struct Rest(Arc<Mutex<Option<Incoming>>>);

/// A body that goes to `rest` when it is dropped before its end.
struct Lent {
    body: Option<Incoming>,
    rest: Rest,
}

/// Wraps the request's body, so that the rest of it can be drained. None for a request without a body.
pub(super) fn lend(request: Request<Incoming>) -> (Request<Body>, Option<Rest>) {
    if request.body().is_end_stream() {
        return (request.map(Body::new), None);
    }
    let rest = Rest::default();
    let request = request.map(|body| Body::new(Lent { body: Some(body), rest: rest.clone() }));
    (request, Some(rest))
}

/// Makes an answer end only after the rest of the request's body was drained.
pub(super) fn until_drained(answer: Response<Body>, rest: Option<Rest>) -> Response<Body> {
    let Some(rest) = rest else { return answer };
    answer.map(|body| Body::new(Draining { answer: body, is_answered: false, rest, drain: Drain::default() }))
}

impl http_body::Body for Lent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        self.body.as_mut().map_or(Poll::Ready(None), |body| Pin::new(body).poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), http_body::Body::size_hint)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        *self.rest.0.lock() = self.body.take().filter(|body| !body.is_end_stream());
    }
}

/// The state of draining.
#[derive(Default)]
struct Drain {
    body: Option<Incoming>,
    bytes: usize,
    until: Option<Pin<Box<Sleep>>>,
}

impl Drain {
    /// Ready when the body has ended, or when a limit is reached.
    fn poll(&mut self, rest: &Rest, is_answered: bool, cx: &mut Context<'_>) -> Poll<()> {
        if self.body.is_none() {
            self.body = rest.0.lock().take();
        }
        let Some(body) = &mut self.body else { return Poll::Ready(()) };
        let ended = loop {
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.bytes += frame.data_ref().map_or(0, Buf::remaining);
                    if self.bytes > BYTES_MAX {
                        break true;
                    }
                }
                Poll::Ready(None | Some(Err(_))) => break true,
                Poll::Pending => break false,
            }
        };
        let mut is_late = |until: &mut Pin<Box<Sleep>>| until.as_mut().poll(cx).is_ready();
        if ended || is_answered && is_late(self.until.get_or_insert_with(|| Box::pin(tokio::time::sleep(TIME_MAX)))) {
            self.body = None;
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

/// An answer that ends after the rest of the request's body was drained.
struct Draining {
    answer: Body,
    is_answered: bool,
    rest: Rest,
    drain: Drain,
}

impl http_body::Body for Draining {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if !this.is_answered {
            match Pin::new(&mut this.answer).poll_frame(cx) {
                Poll::Ready(None) => this.is_answered = true,
                answered => {
                    // Draining goes on while the answer is sent.
                    let _drained = this.drain.poll(&this.rest, false, cx);
                    return answered;
                }
            }
        }
        this.drain.poll(&this.rest, true, cx).map(|()| None)
    }

    /// hyper calls this before each frame. False while a body is still to be drained.
    fn is_end_stream(&self) -> bool {
        self.answer.is_end_stream() && self.drain.body.is_none() && self.rest.0.lock().is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.answer.size_hint()
    }
}
