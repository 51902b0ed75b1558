//! The store in memory: the simplest implementation of [`Store`], without durability. Tests compare the other backends
//! with it, and in-process tests of the layers above use it.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{Batch, Entry, Event, Events, Expect, Guard, Revision, Snapshot, Store, StoreError, Write};

/// A store in memory. Its content is lost when it is dropped.
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    head: watch::Sender<Revision>,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<Arc<str>, Entry>,
    log: Vec<Event>,
    revision: Revision,
    compacted: Revision,
    closed: bool,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store at revision 0.
    pub fn new() -> Self {
        Self { state: Arc::default(), head: watch::Sender::new(0) }
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn write(&self, write: Write) -> Result<Revision, StoreError> {
        let revision = self.state.lock().apply(write)?;
        // Concurrent writers reach this point in any order, so the head only grows.
        self.head.send_if_modified(|head| {
            let newer = revision > *head;
            *head = revision.max(*head);
            newer
        });
        Ok(revision)
    }

    async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let state = self.state.lock();
        Ok(Snapshot { revision: state.revision, entries: state.entries.values().cloned().collect() })
    }

    async fn head(&self) -> Result<Revision, StoreError> {
        let state = self.state.lock();
        if state.closed { Err(StoreError::Closed) } else { Ok(state.revision) }
    }

    async fn watch(&self, after: Revision) -> Result<Events, StoreError> {
        self.state.lock().after(after)?;
        let follower = (Arc::clone(&self.state), self.head.subscribe(), after);
        Ok(futures::stream::unfold(follower, |(state, mut head, after)| async move {
            loop {
                let found = state.lock().after(after);
                match found {
                    Ok(events) if events.is_empty() => {
                        if head.changed().await.is_err() {
                            return Some((Err(StoreError::Closed), (state, head, after)));
                        }
                    }
                    Ok(events) => {
                        let revision = events.last().map_or(after, |event| event.revision);
                        return Some((Ok(Batch { events, revision }), (state, head, revision)));
                    }
                    Err(error) => return Some((Err(error), (state, head, after))),
                }
            }
        })
        .boxed())
    }

    async fn compacted(&self) -> Result<Revision, StoreError> {
        let state = self.state.lock();
        if state.closed { Err(StoreError::Closed) } else { Ok(state.compacted) }
    }

    async fn compact(&self, upto: Revision) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let upto = upto.min(state.revision);
        state.compacted = state.compacted.max(upto);
        state.log.retain(|event| event.revision > upto);
        Ok(())
    }

    async fn size_bytes(&self) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn close(&self) {
        self.state.lock().closed = true;
    }
}

impl State {
    fn apply(&mut self, write: Write) -> Result<Revision, StoreError> {
        if self.closed {
            return Err(StoreError::Closed);
        }
        let current = self.entries.get(&write.key).map(|entry| (entry.revision, entry.created));
        let wanted = match write.expect {
            Expect::Absent => None,
            Expect::At(revision) => Some(revision),
        };
        if current.map(|(revision, _)| revision) != wanted {
            return Err(StoreError::Conflict { current: current.map(|(revision, _)| revision) });
        }
        let is_lost = |guard: &&Guard| self.entries.get(&guard.key).is_none_or(|entry| entry.revision != guard.revision);
        if let Some(guard) = write.guards.iter().find(is_lost) {
            return Err(StoreError::Unguarded { key: Arc::clone(&guard.key) });
        }
        self.revision += 1;
        let revision = self.revision;
        self.log.push(Event { revision, key: Arc::clone(&write.key), value: write.value.clone(), previous: wanted });
        self.put(write.key, write.value, revision, current.map_or(revision, |(_, created)| created));
        Ok(revision)
    }

    fn put(&mut self, key: Arc<str>, value: Option<Bytes>, revision: Revision, created: Revision) {
        match value {
            Some(value) => self.entries.insert(Arc::clone(&key), Entry { key, value, revision, created }),
            None => self.entries.remove(&key),
        };
    }

    fn after(&self, after: Revision) -> Result<Vec<Event>, StoreError> {
        if after < self.compacted {
            return Err(StoreError::Compacted { oldest: self.compacted });
        }
        let from = self.log.partition_point(|event| event.revision <= after);
        Ok(self.log.get(from..).unwrap_or_default().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::battery!(async { Arc::new(MemoryStore::new()) as Arc<dyn Store> });
}
