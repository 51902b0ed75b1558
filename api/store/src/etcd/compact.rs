//! Compaction of etcd's history in intervals, by one of the servers that share an etcd.
//!
//! In each interval, every server tries to update one key, on the condition that the key still has the version that the
//! server read last. The server whose update succeeds compacts to the revision of one interval ago, so that a watch has
//! between one and two intervals to resume. The key and the protocol are kube-apiserver's (`compact.go`), so
//! kube-apiservers and Skiff's servers can share an etcd.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::members::path;
use super::wire::{Compare, PutRequest, RangeRequest, Request, TxnRequest, TxnResponse, revision};
use crate::StoreError;

/// Upstream's `compactRevKey`. It has no prefix, because compaction affects the whole of etcd.
const COMPACT_REV_KEY: &[u8] = b"compact_rev_key";

/// The state of the key and of the log at the last attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CompactionState {
    /// The version of the key: the number of its changes.
    version: i64,
    /// The revision of the log.
    revision: i64,
}

/// Tries to compact in every interval until the store is closed.
pub(super) async fn run(shared: Arc<Shared>, interval: Duration) {
    let mut state = CompactionState::default();
    loop {
        tokio::select! {
            () = shared.until_closed() => return,
            () = tokio::time::sleep(interval) => {}
        }
        match try_compact(&shared, state).await {
            Ok(next) => state = next,
            Err(error) => tracing::warn!(%error, "compaction failed; it will be tried again"),
        }
    }
}

/// Compacts, unless another server did so since the last attempt. Returns the state for the next attempt.
pub(super) async fn try_compact(shared: &Shared, state: CompactionState) -> Result<CompactionState, StoreError> {
    let put = PutRequest { key: COMPACT_REV_KEY.to_vec(), value: state.revision.to_string().into() };
    let range = RangeRequest { key: COMPACT_REV_KEY.to_vec(), ..RangeRequest::default() };
    let txn = TxnRequest {
        compare: vec![Compare::version(COMPACT_REV_KEY, state.version)],
        success: vec![Request::Put(put).into()],
        failure: vec![Request::Range(range).into()],
    };
    let answer: TxnResponse =
        shared.members.write(path::TXN, txn).await.map_err(|status| shared.failed("claiming a compaction", status))?;
    let now = revision(answer.header);
    if !answer.succeeded {
        return Ok(CompactionState { version: answer.found().map_or(0, |found| found.version), revision: now });
    }
    // At the first attempt, the revision of one interval ago is unknown.
    if state.revision > 0 {
        shared.compact(state.revision).await?;
        tracing::debug!(revision = state.revision, "history compacted");
    }
    Ok(CompactionState { version: state.version + 1, revision: now })
}
