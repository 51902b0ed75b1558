//! Seats: a request takes a free seat at once, or waits for one. Dropping a seat returns it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::Rejected;
use crate::flow_schema::FlowSchema;
use crate::level::{Grant, Level, Waiter};
use crate::queues::{Refused, Ticket};

/// The levels that share the server's seats.
#[derive(Default)]
pub(crate) struct Core {
    levels: RwLock<Arc<[Arc<Level>]>>,
    /// Waiting requests of all levels. While it is zero, a returned seat needs no dispatch.
    waiting: AtomicU32,
}

/// The right to be served. Dropping it dispatches the next request.
pub struct Seat {
    core: Arc<Core>,
    schema: Arc<FlowSchema>,
    grant: Grant,
    started: Instant,
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").field("schema", &self.schema.name).field("width", &self.grant.width).finish_non_exhaustive()
    }
}

/// A waiting request. Dropping it leaves the queue.
pub(crate) struct Waiting {
    core: Arc<Core>,
    schema: Arc<FlowSchema>,
    ticket: Ticket,
    receiver: Option<oneshot::Receiver<Seat>>,
}

impl Core {
    pub(crate) fn set_levels(&self, levels: Arc<[Arc<Level>]>) {
        *self.levels.write() = levels;
    }

    /// Takes a free seat; `None` if there is none, or if other requests wait.
    pub(crate) fn enter(self: &Arc<Self>, schema: &Arc<FlowSchema>, width: u32) -> Option<Seat> {
        let level = &schema.level;
        if level.waiting.load(Ordering::SeqCst) > 0 {
            return None;
        }
        let grant = self.grant(level, level.fitting(width))?;
        schema.stats.waited(Duration::ZERO);
        Some(self.seat(grant, schema))
    }

    /// Adds a request to a queue of the schema's level.
    pub(crate) fn queue(core: &Arc<Self>, schema: &Arc<FlowSchema>, flow: u64, width: u32) -> Result<Waiting, Rejected> {
        let level = &schema.level;
        let (sender, receiver) = oneshot::channel();
        let width = level.fitting(width);
        let start = {
            let (core, schema) = (Arc::clone(core), Arc::clone(schema));
            // If the request no longer waits, its seat is dropped, which dispatches the next request.
            Box::new(move |grant| sender.send(core.seat(grant, &schema)).is_ok())
        };
        let waiter = Waiter { stats: Arc::clone(&schema.stats), since: Instant::now(), start };
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
        // A seat may have become free before the request was in the queue, so dispatch now.
        core.dispatch(level);
        Ok(waiting)
    }

    fn seat(self: &Arc<Self>, grant: Grant, schema: &Arc<FlowSchema>) -> Seat {
        schema.stats.started(grant.width);
        Seat { core: Arc::clone(self), schema: Arc::clone(schema), grant, started: Instant::now() }
    }

    fn grant(&self, level: &Arc<Level>, width: u32) -> Option<Grant> {
        if level.take(width) {
            return Some(Grant { width, lender: None, queue: None });
        }
        if !level.borrow(width) {
            return None;
        }
        let levels = Arc::clone(&self.levels.read());
        let lender = levels.iter().find(|other| !Arc::ptr_eq(other, level) && other.lend(width));
        if lender.is_none() {
            level.return_borrowed(width);
        }
        lender.map(|lender| Grant { width, lender: Some(Arc::clone(lender)), queue: None })
    }

    fn count(&self, level: &Level, more: u32) {
        level.waiting.fetch_add(more, Ordering::SeqCst);
        self.waiting.fetch_add(more, Ordering::SeqCst);
    }

    fn uncount(&self, level: &Level) {
        level.waiting.fetch_sub(1, Ordering::SeqCst);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Gives free seats to the next requests of the level.
    fn dispatch(self: &Arc<Self>, level: &Arc<Level>) {
        while let Some((waiter, grant)) = self.next(level) {
            let waited = waiter.since.elapsed();
            if (waiter.start)(grant) {
                waiter.stats.waited(waited);
            }
        }
    }

    fn next(&self, level: &Arc<Level>) -> Option<(Waiter, Grant)> {
        let mut queues = level.queues.lock();
        let grant = self.grant(level, queues.next_width()?)?;
        match queues.pop() {
            Some(next) => {
                self.uncount(level);
                next.item.stats.dequeued();
                Some((next.item, Grant { queue: Some(next.queue), ..grant }))
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

    /// Dispatches the waiting requests of all levels.
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
        self.core.release(level, &self.grant);
        self.schema.stats.ended(self.grant.width, took);
        if let Some(queue) = self.grant.queue {
            level.queues.lock().ended(queue, self.grant.width, took.as_secs_f64());
        }
        // The level's own requests come first. A level that was removed from the configuration may still have some.
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
