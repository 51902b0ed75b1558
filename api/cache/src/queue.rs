//! The waiting deliveries of one watcher. The feeder adds what was committed together at once and wakes the watcher once; the
//! watcher takes everything that waits.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::delivery::Delivery;

/// The changes that may wait for one watcher; a watcher with more is ended and must start again.
const WAITING_LEN_MAX: usize = 1_024;
/// The bytes of lines that may wait for one watcher, beside a first delivery of any size.
const WAITING_BYTES_MAX: usize = 16 << 20;

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Arc<Delivery>>,
    /// Changes in all of them.
    len: usize,
    /// Bytes of their lines.
    bytes: usize,
    waker: Option<Waker>,
    /// No more deliveries will come.
    ended: bool,
}

/// The feeder's end; when it is dropped the watcher gets the waiting deliveries, and then the end.
#[derive(Debug)]
pub(super) struct Sender(Arc<Mutex<Queue>>);

/// The watcher's end.
#[derive(Debug)]
pub struct Receiver(Arc<Mutex<Queue>>);

/// A queue's two ends.
pub(super) fn queue() -> (Sender, Receiver) {
    let queue = Arc::default();
    (Sender(Arc::clone(&queue)), Receiver(queue))
}

impl Sender {
    /// Adds deliveries in order; returns whether there was room for all of them.
    pub(super) fn send(&self, deliveries: &[Arc<Delivery>]) -> bool {
        let mut queue = self.0.lock();
        for delivery in deliveries {
            let len = delivery.changes().len();
            let too_long = queue.len + len > WAITING_LEN_MAX;
            if too_long || (!queue.waiting.is_empty() && queue.bytes + delivery.bytes() > WAITING_BYTES_MAX) {
                return false;
            }
            queue.len += len;
            queue.bytes += delivery.bytes();
            queue.waiting.push_back(Arc::clone(delivery));
        }
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.ended = true;
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Receiver {
    /// Takes everything that waits, at least one delivery; `None` at the end.
    pub fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<Option<VecDeque<Arc<Delivery>>>> {
        let mut queue = self.0.lock();
        if !queue.waiting.is_empty() {
            (queue.len, queue.bytes) = (0, 0);
            return Poll::Ready(Some(std::mem::take(&mut queue.waiting)));
        }
        if queue.ended {
            return Poll::Ready(None);
        }
        match &mut queue.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            waker => *waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Waits for a delivery; returns false at the end.
    pub async fn changed(&mut self) -> bool {
        poll_fn(|cx| self.poll_take(cx)).await.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Before, Change, Event};

    fn delivery(changes: u64) -> Arc<Delivery> {
        let event = |revision| (Change::Modified, Arc::new(Event::new(revision, Before::Nothing, None)));
        Delivery::of((1..=changes).map(event)).remove(0)
    }

    #[tokio::test]
    async fn everything_that_waits_comes_at_once_and_then_the_end() {
        let (sender, mut receiver) = queue();
        assert!(sender.send(&[delivery(1), delivery(2)]));
        assert!(sender.send(&[delivery(3)]));
        let taken = poll_fn(|cx| receiver.poll_take(cx)).await.expect("deliveries");
        assert_eq!(taken.iter().map(|delivery| delivery.changes().len()).collect::<Vec<_>>(), [1, 2, 3]);
        let waiting = tokio::spawn(async move { (receiver.changed().await, receiver.changed().await) });
        tokio::task::yield_now().await;
        assert!(sender.send(&[delivery(1)]));
        tokio::task::yield_now().await;
        drop(sender);
        assert_eq!(waiting.await.expect("no panic"), (true, false));
    }

    #[tokio::test]
    async fn room_is_counted_in_changes() {
        let (sender, mut receiver) = queue();
        let most = WAITING_LEN_MAX as u64;
        assert!(sender.send(&[delivery(most - 1), delivery(1)]));
        assert!(!sender.send(&[delivery(1)]));
        assert!(receiver.changed().await);
        assert!(sender.send(&[delivery(1)]));
    }
}
