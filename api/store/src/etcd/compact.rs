//! Forgetting history: every few minutes, by one of the servers that share an etcd.
//!
//! All of them try to change one key at a time that they have agreed on by their last look at it; who
//! succeeds compacts up to where the log was one interval ago, so that a watch has between one and two
//! intervals to resume. Key and manner are kube-apiserver's: servers of both kinds take turns.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::members::path;
use super::wire::{Compare, PutRequest, RangeRequest, Request, TxnRequest, TxnResponse, revision};
use crate::StoreError;

/// Outside of every prefix: compaction is about the whole of etcd.
const TURN_KEY: &[u8] = b"compact_rev_key";

/// What was seen at the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// How often the key has been changed.
    version: i64,
    /// Where the log was.
    revision: i64,
}

/// Takes part until the store is closed.
pub(super) async fn run(shared: Arc<Shared>, interval: Duration) {
    let mut turn = Turn::default();
    loop {
        tokio::select! {
            () = shared.until_closed() => return,
            () = tokio::time::sleep(interval) => {}
        }
        match take(&shared, turn).await {
            Ok(next) => turn = next,
            Err(error) => tracing::warn!(%error, "compaction failed; it will be tried again"),
        }
    }
}

/// One look: compacts when nobody else has since the last one.
pub(super) async fn take(shared: &Shared, turn: Turn) -> Result<Turn, StoreError> {
    let put = PutRequest { key: TURN_KEY.to_vec(), value: turn.revision.to_string().into() };
    let range = RangeRequest { key: TURN_KEY.to_vec(), ..RangeRequest::default() };
    let txn = TxnRequest {
        compare: vec![Compare::version(TURN_KEY, turn.version)],
        success: vec![Request::Put(put).into()],
        failure: vec![Request::Range(range).into()],
    };
    let answer: TxnResponse =
        shared.members.write(path::TXN, txn).await.map_err(|status| shared.failed("taking a turn at compacting", status))?;
    let now = revision(answer.header);
    if !answer.succeeded {
        return Ok(Turn { version: answer.found().map_or(0, |found| found.version), revision: now });
    }
    // At the first look it is not known how long ago that revision was.
    if turn.revision > 0 {
        shared.compact(turn.revision).await?;
        tracing::debug!(revision = turn.revision, "history compacted");
    }
    Ok(Turn { version: turn.version + 1, revision: now })
}
