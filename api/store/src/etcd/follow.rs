//! Watches of etcd's log, as batches.
//!
//! etcd's revision counts every write, also those of other clients outside of the prefix, which a watch does not see.
//! So a watch may stay below the revision that a reader waits for, although it misses no event. The store then writes a
//! progress mark inside of the prefix. The mark has a greater revision. When the watch returns the mark, it has
//! returned all events before it. (etcd's own progress requests are not reliable before 3.4.25 and 3.5.8.) No mark is
//! needed while the last write of etcd was inside of the prefix.

use std::sync::Arc;
use std::time::Duration;

use super::members::{Watching, path};
use super::wire::{PutRequest, PutResponse, WatchEvent, WatchResponse, revision};
use super::{Shared, unsigned};
use crate::{Batch, Event, Revision, StoreError};

/// How long a reader waits for an event before a mark is written.
const PATIENCE: Duration = Duration::from_millis(20);
/// Pause before another attempt to write a failed mark.
const RETRY: Duration = Duration::from_millis(500);
/// `mvccpb.Event.DELETE`
const DELETE: i32 = 1;

/// A running watch.
pub(super) struct Follower {
    pub(super) shared: Arc<Shared>,
    pub(super) watching: Watching,
    /// The watch has returned every event up to this revision, or the event was before the start of the watch.
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

    /// The batch of a response; `None` if the response has nothing new.
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
            // A progress notification. etcd sends it to a watch that has received every event.
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

    /// An event of the store; `None` for an event before the start, and for a mark.
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
    /// Records that an event with the given revision exists, which every watch reaches.
    pub(super) fn seen(&self, revision: Revision) {
        self.seen.fetch_max(revision, std::sync::atomic::Ordering::AcqRel);
    }

    /// Records that a reader waits until watches reach the given revision.
    pub(super) fn want(&self, revision: Revision) {
        self.wanted.send_if_modified(|wanted| {
            let grows = revision > *wanted;
            *wanted = revision.max(*wanted);
            grows
        });
    }

    /// Returns when a reader waits for a revision beyond `reached` and no event with such a revision arrives.
    async fn wanted_beyond(&self, reached: Revision) -> Revision {
        let mut wanted = self.wanted.subscribe();
        // The sender is in `self`, so the wait ends only with a greater revision.
        let grown = wanted.wait_for(|wanted| *wanted > reached).await.map(|wanted| *wanted);
        tokio::time::sleep(PATIENCE).await;
        grown.unwrap_or(reached)
    }

    /// Writes a mark, unless an event at or beyond `wanted` exists. One mark serves all watches.
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
