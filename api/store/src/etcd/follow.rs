//! Following etcd's log: what a watch of etcd says, as batches.
//!
//! Revisions count every write in etcd, also those of others outside of our prefix, and a watch says
//! nothing about them. So it may stand below a revision that a reader waits for although no event is
//! missing. Then a mark is written inside of the prefix: its revision is beyond, and when the watch
//! shows it, everything up to it was shown. (etcd's own progress requests were not to be trusted with
//! this before its 3.4.25 and 3.5.8.) While our own writes are the last ones no mark is needed.

use std::sync::Arc;
use std::time::Duration;

use super::members::{Watching, path};
use super::wire::{PutRequest, PutResponse, WatchEvent, WatchResponse, revision};
use super::{Shared, unsigned};
use crate::{Batch, Event, Revision, StoreError};

/// How long an event that is on its way may take before a mark is written.
const PATIENCE: Duration = Duration::from_millis(20);
/// Pause before a mark that failed is written again.
const RETRY: Duration = Duration::from_millis(500);
/// `mvccpb.Event.DELETE`
const DELETE: i32 = 1;

/// A watch under way.
pub(super) struct Follower {
    pub(super) shared: Arc<Shared>,
    pub(super) watching: Watching,
    /// Everything up to here has been handed on, or was not wanted.
    pub(super) reached: Revision,
}

impl Follower {
    /// The next batch.
    pub(super) async fn next(&mut self) -> Result<Batch, StoreError> {
        loop {
            let received = tokio::select! {
                () = self.shared.until_closed() => return Err(StoreError::Closed),
                received = self.watching.responses.message() => received,
                wanted = self.shared.wanted_beyond(self.reached) => {
                    if let Err(error) = self.shared.mark(wanted).await {
                        tracing::warn!(%error, "reading the present has to wait");
                        tokio::time::sleep(RETRY).await;
                    }
                    continue;
                }
            };
            let response = match received {
                Ok(Some(response)) => response,
                Ok(None) => return Err(self.ended(tonic::Status::unavailable("the watch ended"))),
                Err(status) => return Err(self.ended(status)),
            };
            if let Some(batch) = self.read(response)? {
                self.reached = batch.revision;
                return Ok(batch);
            }
        }
    }

    fn ended(&self, status: tonic::Status) -> StoreError {
        self.shared.members.watch_ended(&self.watching, &status);
        self.shared.failed("watching", status)
    }

    /// What a response says beyond what is known; `None` when that is nothing.
    fn read(&self, response: WatchResponse) -> Result<Option<Batch>, StoreError> {
        if response.canceled {
            return Err(match unsigned(response.compact_revision) {
                0 => self.ended(tonic::Status::unavailable(response.cancel_reason)),
                oldest => StoreError::Compacted { oldest },
            });
        }
        if response.created {
            return Ok(None);
        }
        let Some(last) = response.events.iter().filter_map(|event| event.kv.as_ref()).map(|kv| unsigned(kv.mod_revision)).max() else {
            // A notice of progress: etcd sends them to watches that have seen everything.
            let revision = unsigned(revision(response.header));
            return Ok((revision > self.reached).then(|| Batch { events: Vec::new(), revision }));
        };
        self.shared.seen(last);
        if last <= self.reached {
            return Ok(None);
        }
        let events = response.events.into_iter().filter_map(|event| self.event(event)).collect();
        Ok(Some(Batch { events, revision: last }))
    }

    /// An event of ours; `None` for what was there before, and for marks.
    fn event(&self, event: WatchEvent) -> Option<Event> {
        let kv = event.kv?;
        let revision = unsigned(kv.mod_revision);
        if revision <= self.reached {
            return None;
        }
        let key = self.shared.key_of(&kv.key)?;
        let is_delete = event.kind == DELETE;
        let is_new = !is_delete && kv.create_revision == kv.mod_revision;
        let previous = (!is_new).then(|| event.prev_kv.map_or(0, |previous| unsigned(previous.mod_revision)));
        Some(Event { revision, key, value: (!is_delete).then_some(kv.value), previous })
    }
}

impl Shared {
    /// An event of that revision exists: every watch comes to it.
    pub(super) fn seen(&self, revision: Revision) {
        self.seen.fetch_max(revision, std::sync::atomic::Ordering::AcqRel);
    }

    /// Somebody waits for watches to come to that revision.
    pub(super) fn want(&self, revision: Revision) {
        self.wanted.send_if_modified(|wanted| {
            let grows = revision > *wanted;
            *wanted = revision.max(*wanted);
            grows
        });
    }

    /// Comes back when a revision beyond `reached` is waited for and nothing leads there by itself.
    async fn wanted_beyond(&self, reached: Revision) -> Revision {
        let mut wanted = self.wanted.subscribe();
        // The sender is in `self`, so this ends only by growing.
        let grown = wanted.wait_for(|wanted| *wanted > reached).await.map(|wanted| *wanted);
        tokio::time::sleep(PATIENCE).await;
        grown.unwrap_or(reached)
    }

    /// Writes a mark unless an event beyond `wanted` exists already. One does it for all.
    async fn mark(&self, wanted: Revision) -> Result<(), StoreError> {
        let _marking = self.marking.lock().await;
        if self.seen.load(std::sync::atomic::Ordering::Acquire) >= wanted {
            return Ok(());
        }
        let put = PutRequest { key: self.mark_key.clone(), value: bytes::Bytes::new() };
        let put: PutResponse = self.members.write(path::PUT, put).await.map_err(|status| self.failed("writing a mark to", status))?;
        self.seen(unsigned(revision(put.header)));
        Ok(())
    }
}
