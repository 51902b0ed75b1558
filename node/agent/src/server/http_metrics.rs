//! Counts and times the requests to the node's server. A request lasts until its answer is sent or given up; one that is upgraded, for
//! exec and its like, until the upgrade.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

use crate::kubelet_metrics::InflightRequest;
use crate::node::Node;

/// Passes a request on, and measures it.
pub(super) async fn measure(State(node): State<Arc<Node>>, request: Request, next: Next) -> Response {
    let inflight = InflightRequest::begin(node.kubelet_metrics.clone(), request.method().as_str(), request.uri().path());
    next.run(request).await.map(|inner| Body::new(MeasuredBody { inner, _inflight: inflight }))
}

/// The body of an answer. The request is in flight as long as it exists.
struct MeasuredBody {
    inner: Body,
    _inflight: InflightRequest,
}

impl HttpBody for MeasuredBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
