//! Seats: taken at once where there are any, waited for otherwise, given back by dropping them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::Rejected;
use crate::classify::Schema;
use crate::level::Level;
use crate::queues::{Refused, Ticket};

/// The levels that share the server's seats.
#[derive(Default)]
pub(crate) struct Core {
    levels: RwLock<Arc<[Arc<Level>]>>,
    /// Requests that wait in any level: while there are none, seats are given back without a look.
    waiting: AtomicU32,
}

/// The right to be answered. Dropping it lets the next one in.
pub struct Seat {
    core: Arc<Core>,
    schema: Arc<Schema>,
    width: u32,
    /// Whose seats these are, where they are not the level's own.
    lender: Option<Arc<Level>>,
    /// The queue that is charged; none for a request that did not have to wait.
    queue: Option<u32>,
    started: Instant,
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").field("schema", &self.schema.name).field("width", &self.width).finish_non_exhaustive()
    }
}

/// A request in a queue.
pub(crate) struct Waiter {
    schema: Arc<Schema>,
    since: Instant,
    sender: oneshot::Sender<Seat>,
}

/// A request's own end of its waiting. Dropping it leaves the queue.
pub(crate) struct Waiting {
    core: Arc<Core>,
    schema: Arc<Schema>,
    ticket: Ticket,
    receiver: Option<oneshot::Receiver<Seat>>,
}

/// Seats taken for a level.
struct Grant {
    width: u32,
    lender: Option<Arc<Level>>,
}

impl Core {
    pub(crate) fn set_levels(&self, levels: Arc<[Arc<Level>]>) {
        *self.levels.write() = levels;
    }

    /// A seat at once, unless there is none or others wait for one.
    pub(crate) fn enter(self: &Arc<Self>, schema: &Arc<Schema>, width: u32) -> Option<Seat> {
        let level = &schema.level;
        if level.waiting.load(Ordering::SeqCst) > 0 {
            return None;
        }
        let grant = self.grant(level, level.fitting(width))?;
        schema.stats.waited(Duration::ZERO);
        Some(self.seat(grant, schema, None))
    }

    /// Waits in a queue of the schema's level.
    pub(crate) fn queue(core: &Arc<Self>, schema: &Arc<Schema>, flow: u64, width: u32) -> Result<Waiting, Rejected> {
        let level = &schema.level;
        let (sender, receiver) = oneshot::channel();
        let width = level.fitting(width);
        let waiter = Waiter { schema: Arc::clone(schema), since: Instant::now(), sender };
        let ticket = {
            let mut queues = level.queues.lock();
            let ticket = queues.enqueue(flow, width, waiter).map_err(|refused| match refused {
                Refused::NoQueues => Rejected::ConcurrencyLimit,
                Refused::Full => Rejected::QueueFull,
            })?;
            core.count(level, 1);
            schema.stats.queued(1);
            ticket
        };
        let waiting = Waiting { core: Arc::clone(core), schema: Arc::clone(schema), ticket, receiver: Some(receiver) };
        // A seat given back before it was known that somebody waits is still there: take it now.
        core.dispatch(level);
        Ok(waiting)
    }

    fn seat(self: &Arc<Self>, grant: Grant, schema: &Arc<Schema>, queue: Option<u32>) -> Seat {
        schema.stats.started(grant.width);
        let Grant { width, lender } = grant;
        Seat { core: Arc::clone(self), schema: Arc::clone(schema), width, lender, queue, started: Instant::now() }
    }

    fn grant(&self, level: &Arc<Level>, width: u32) -> Option<Grant> {
        if level.take(width) {
            return Some(Grant { width, lender: None });
        }
        if !level.borrow(width) {
            return None;
        }
        let levels = Arc::clone(&self.levels.read());
        let lender = levels.iter().find(|other| !Arc::ptr_eq(other, level) && other.lend(width));
        if lender.is_none() {
            level.return_borrowed(width);
        }
        lender.map(|lender| Grant { width, lender: Some(Arc::clone(lender)) })
    }

    fn count(&self, level: &Level, more: u32) {
        level.waiting.fetch_add(more, Ordering::SeqCst);
        self.waiting.fetch_add(more, Ordering::SeqCst);
    }

    fn uncount(&self, level: &Level) {
        level.waiting.fetch_sub(1, Ordering::SeqCst);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Gives the level's free seats to those whose turn it is.
    fn dispatch(self: &Arc<Self>, level: &Arc<Level>) {
        while let Some((waiter, queue, grant)) = self.next(level) {
            let waited = waiter.since.elapsed();
            let seat = self.seat(grant, &waiter.schema, Some(queue));
            // Whoever has left meanwhile drops the seat, which lets the next one in.
            if waiter.sender.send(seat).is_ok() {
                waiter.schema.stats.waited(waited);
            }
        }
    }

    fn next(&self, level: &Arc<Level>) -> Option<(Waiter, u32, Grant)> {
        let mut queues = level.queues.lock();
        let grant = self.grant(level, queues.next_width()?)?;
        match queues.pop() {
            Some(next) => {
                self.uncount(level);
                next.item.schema.stats.dequeued();
                Some((next.item, next.queue, grant))
            }
            None => {
                self.release(level, &grant);
                None
            }
        }
    }

    fn release(&self, level: &Level, grant: &Grant) {
        match &grant.lender {
            None => level.give_back(grant.width),
            Some(lender) => {
                level.return_borrowed(grant.width);
                lender.take_back(grant.width);
            }
        }
    }

    /// Lets those in who wait, wherever a seat has become free.
    pub(crate) fn dispatch_all(self: &Arc<Self>) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let levels = Arc::clone(&self.levels.read());
        for level in levels.iter().filter(|level| level.waiting.load(Ordering::SeqCst) > 0) {
            self.dispatch(level);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let (level, took) = (&self.schema.level, self.started.elapsed());
        self.core.release(level, &Grant { width: self.width, lender: self.lender.take() });
        self.schema.stats.ended(self.width, took);
        if let Some(queue) = self.queue {
            level.queues.lock().ended(queue, self.width, took.as_secs_f64());
        }
        // The level's own requests first; a level that is out of the configuration has them still.
        if level.waiting.load(Ordering::SeqCst) > 0 {
            self.core.dispatch(level);
        }
        self.core.dispatch_all();
    }
}

impl Waiting {
    /// Waits for the seat.
    pub(crate) async fn seat(mut self, wait_max: Duration) -> Result<Seat, Rejected> {
        let Some(receiver) = self.receiver.take() else { return Err(Rejected::TimeOut) };
        match tokio::time::timeout(wait_max, receiver).await {
            Ok(Ok(seat)) => Ok(seat),
            Ok(Err(_)) | Err(_) => Err(Rejected::TimeOut),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let level = &self.schema.level;
        if level.queues.lock().leave(self.ticket) {
            self.core.uncount(level);
            self.schema.stats.dequeued();
        }
    }
}
