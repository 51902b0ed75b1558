//! Without fault injection.

use std::future::Future;

/// A point where tests inject a fault into a thread.
pub fn point(_: &'static str) {}

pub(crate) async fn or_done<W: Future>(_: &'static str, work: W) -> Option<W::Output> {
    Some(work.await)
}

pub(crate) async fn or_result<W: Future>(_: &'static str, work: W) -> W::Output {
    work.await
}
