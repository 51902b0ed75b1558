//! Nothing can be made to fail here.

use std::future::Future;

/// A place where tests make a thread fail.
pub fn point(_: &'static str) {}

pub(crate) async fn or_done<W: Future>(_: &'static str, work: W) -> Option<W::Output> {
    Some(work.await)
}

pub(crate) async fn or_result<W: Future>(_: &'static str, work: W) -> W::Output {
    work.await
}
