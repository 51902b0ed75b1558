//! The most recent events of the log, in memory. Watches read from the tail; a watch that is further behind reads the
//! backend's history.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{Event, Revision};

/// The maximum of events in the tail, and of bytes of their values.
const RECENT_LEN_MAX: usize = 2_048;
const RECENT_BYTES_MAX: usize = 4 << 20;
/// The maximum of events in one batch.
const BATCH_LEN_MAX: usize = 512;

pub(crate) struct Tail {
    recent: Mutex<Recent>,
    head: watch::Sender<Revision>,
}

#[derive(Default)]
struct Recent {
    events: VecDeque<Event>,
    bytes: usize,
}

fn bytes(event: &Event) -> usize {
    event.value.as_ref().map_or(0, Bytes::len)
}

impl Tail {
    pub(crate) fn new(head: Revision) -> Self {
        Self { recent: Mutex::default(), head: watch::Sender::new(head) }
    }

    /// The revision of the last event.
    pub(crate) fn head(&self) -> Revision {
        *self.head.borrow()
    }

    /// A receiver of [`Tail::head`].
    pub(crate) fn follow(&self) -> watch::Receiver<Revision> {
        self.head.subscribe()
    }

    /// Appends durable events, in order.
    pub(crate) fn push(&self, events: impl IntoIterator<Item = Event>) {
        let mut recent = self.recent.lock();
        for event in events {
            recent.bytes += bytes(&event);
            recent.events.push_back(event);
        }
        // The newest event stays, whatever its size is: watches near the head read it.
        while recent.events.len() > RECENT_LEN_MAX || (recent.bytes > RECENT_BYTES_MAX && recent.events.len() > 1) {
            let Some(oldest) = recent.events.pop_front() else { break };
            recent.bytes -= bytes(&oldest);
        }
        let head = recent.events.back().map(|event| event.revision);
        drop(recent);
        if let Some(head) = head {
            self.head.send_replace(head);
        }
    }

    /// The events after `after`; `None` if the tail does not reach back that far.
    pub(crate) fn after(&self, after: Revision) -> Option<Vec<Event>> {
        let recent = self.recent.lock();
        if after >= self.head() {
            return Some(Vec::new());
        }
        let first = recent.events.front()?.revision;
        let skip = usize::try_from((after + 1).checked_sub(first)?).ok()?;
        Some(recent.events.iter().skip(skip).take(BATCH_LEN_MAX).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_values_leave_fewer_events() {
        let tail = Tail::new(0);
        let event = |revision, bytes| Event { revision, key: "a".into(), value: Some(Bytes::from(vec![0; bytes])), previous: None };
        tail.push((1..=10).map(|revision| event(revision, RECENT_BYTES_MAX / 4)));
        assert!(tail.after(5).is_none());
        assert_eq!(tail.after(6).map(|events| events.len()), Some(4));
        tail.push([event(11, RECENT_BYTES_MAX * 2)]);
        assert_eq!(tail.after(10).map(|events| events.len()), Some(1), "the newest stays");
        assert!(tail.after(9).is_none());
    }
}
