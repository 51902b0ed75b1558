//! The log's recent end, kept in memory: followers read from it and fall back to the backend's
//! history when they are further behind.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{Event, Revision};

/// Events kept. A follower further behind reads history instead.
const KEPT_LEN_MAX: usize = 2_048;
/// Events handed out at once.
const BATCH_LEN_MAX: usize = 512;

pub(crate) struct Tail {
    recent: Mutex<VecDeque<Event>>,
    head: watch::Sender<Revision>,
}

impl Tail {
    pub(crate) fn new(head: Revision) -> Self {
        Self { recent: Mutex::new(VecDeque::new()), head: watch::Sender::new(head) }
    }

    /// The revision of the last event.
    pub(crate) fn head(&self) -> Revision {
        *self.head.borrow()
    }

    /// Follows [`Tail::head`].
    pub(crate) fn follow(&self) -> watch::Receiver<Revision> {
        self.head.subscribe()
    }

    /// Appends events that are durable, in order.
    pub(crate) fn push(&self, events: impl IntoIterator<Item = Event>) {
        let mut recent = self.recent.lock();
        recent.extend(events);
        let surplus = recent.len().saturating_sub(KEPT_LEN_MAX);
        recent.drain(..surplus);
        let head = recent.back().map(|event| event.revision);
        drop(recent);
        if let Some(head) = head {
            self.head.send_replace(head);
        }
    }

    /// Events after `after`; `None` when the tail does not reach back that far.
    pub(crate) fn after(&self, after: Revision) -> Option<Vec<Event>> {
        let recent = self.recent.lock();
        if after >= self.head() {
            return Some(Vec::new());
        }
        let first = recent.front()?.revision;
        let skip = usize::try_from((after + 1).checked_sub(first)?).ok()?;
        Some(recent.iter().skip(skip).take(BATCH_LEN_MAX).cloned().collect())
    }
}
