//! Fair queues as a data structure: the waiting requests, their queues, and the next request.
//!
//! Each queue has a virtual clock that advances by the seat-time of its requests. The queue whose clock is furthest
//! behind is served next (start-time fair queuing). A request pays an estimate when it starts, and the difference to
//! the real time when it ends. An idle queue gains nothing: its clock is advanced to the common clock.

use std::collections::{BTreeMap, VecDeque};

use crate::shuffle_sharding;

/// Upstream's estimate of a request's seat-seconds when it starts.
const ESTIMATE_SECONDS: f64 = 0.003;

/// The queue settings of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queuing {
    pub(crate) queues: u32,
    pub(crate) hand_size: u32,
    pub(crate) queue_len_max: u32,
}

/// An item in a queue.
#[derive(Debug)]
struct Waiting<T> {
    id: u64,
    width: u32,
    item: T,
}

#[derive(Debug)]
struct Queue<T> {
    clock: f64,
    waiting: VecDeque<Waiting<T>>,
    executing: u32,
}

/// The position of a waiting item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    queue: u32,
    id: u64,
}

/// The next item and its queue.
#[derive(Debug)]
pub(crate) struct Next<T> {
    pub(crate) queue: u32,
    pub(crate) item: T,
}

/// The item cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The level has no queues.
    NoQueues,
    Full,
}

/// The queues of one level. Unused queues take no memory.
#[derive(Debug)]
pub(crate) struct Queues<T> {
    queuing: Option<Queuing>,
    by_index: BTreeMap<u32, Queue<T>>,
    /// The common clock: the clock of the queue served last.
    now: f64,
    next_id: u64,
}

impl<T> Queues<T> {
    /// Without settings no item can wait.
    pub(crate) fn new(queuing: Option<Queuing>) -> Self {
        Self { queuing, by_index: BTreeMap::new(), now: 0.0, next_id: 0 }
    }

    /// Changes the settings for new items; waiting items stay.
    pub(crate) fn configure(&mut self, queuing: Option<Queuing>) {
        self.queuing = queuing;
    }

    /// Adds an item to the shortest queue of its flow.
    pub(crate) fn enqueue(&mut self, flow: u64, width: u32, item: T) -> Result<Ticket, Refused> {
        let queuing = self.queuing.ok_or(Refused::NoQueues)?;
        let hand = shuffle_sharding::deal(flow, queuing.queues, queuing.hand_size);
        let busy = |index: &u32| self.by_index.get(index).map_or((0, 0), |queue| (queue.waiting.len(), queue.executing));
        let index = hand.into_iter().min_by_key(busy).ok_or(Refused::NoQueues)?;
        let queue = self.by_index.entry(index).or_insert_with(|| Queue { clock: self.now, waiting: VecDeque::new(), executing: 0 });
        if queue.waiting.len() >= usize::try_from(queuing.queue_len_max).unwrap_or(usize::MAX) {
            return Err(Refused::Full);
        }
        if queue.waiting.is_empty() && queue.executing == 0 {
            queue.clock = queue.clock.max(self.now);
        }
        let id = self.next_id;
        self.next_id += 1;
        queue.waiting.push_back(Waiting { id, width, item });
        Ok(Ticket { queue: index, id })
    }

    /// The seats that the next item needs; `None` if the queues are empty.
    pub(crate) fn next_width(&self) -> Option<u32> {
        let queue = self.by_index.get(&self.next_index()?)?;
        queue.waiting.front().map(|waiting| waiting.width)
    }

    /// Removes the next item, which then executes.
    pub(crate) fn pop(&mut self) -> Option<Next<T>> {
        let index = self.next_index()?;
        let queue = self.by_index.get_mut(&index)?;
        let Waiting { width, item, .. } = queue.waiting.pop_front()?;
        self.now = self.now.max(queue.clock);
        queue.clock += ESTIMATE_SECONDS * f64::from(width);
        queue.executing += 1;
        Some(Next { queue: index, item })
    }

    fn next_index(&self) -> Option<u32> {
        let waiting = self.by_index.iter().filter(|(_, queue)| !queue.waiting.is_empty());
        waiting.min_by(|(_, a), (_, b)| a.clock.total_cmp(&b.clock)).map(|(index, _)| *index)
    }

    /// Corrects the clock of the queue for an executed item, which took `seconds`.
    pub(crate) fn ended(&mut self, index: u32, width: u32, seconds: f64) {
        let Some(queue) = self.by_index.get_mut(&index) else { return };
        queue.clock += (seconds - ESTIMATE_SECONDS) * f64::from(width);
        queue.executing = queue.executing.saturating_sub(1);
        self.tidy(index);
    }

    /// Removes a waiting item; false if it was already dispatched.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> bool {
        let Some(queue) = self.by_index.get_mut(&ticket.queue) else { return false };
        let Some(position) = queue.waiting.iter().position(|waiting| waiting.id == ticket.id) else { return false };
        queue.waiting.remove(position);
        self.tidy(ticket.queue);
        true
    }

    /// Removes an idle queue whose clock is not ahead of the common one.
    fn tidy(&mut self, index: u32) {
        let is_idle = |queue: &Queue<T>| queue.waiting.is_empty() && queue.executing == 0 && queue.clock <= self.now;
        if self.by_index.get(&index).is_some_and(is_idle) {
            self.by_index.remove(&index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUING: Queuing = Queuing { queues: 64, hand_size: 1, queue_len_max: 50 };

    fn queues() -> Queues<&'static str> {
        Queues::new(Some(QUEUING))
    }

    fn served(queues: &mut Queues<&'static str>, seconds: impl Fn(&str) -> f64) -> String {
        let mut order = String::new();
        while let Some(next) = queues.pop() {
            order.push_str(next.item);
            queues.ended(next.queue, 1, seconds(next.item));
        }
        order
    }

    #[test]
    fn a_flood_does_not_keep_another_flow_waiting() {
        let mut queues = queues();
        for _ in 0..6 {
            queues.enqueue(1, 1, "a").expect("waits");
        }
        queues.enqueue(2, 1, "b").expect("waits");
        queues.enqueue(2, 1, "b").expect("waits");
        assert_eq!(served(&mut queues, |_| 0.1), "ababaaaa");
    }

    #[test]
    fn time_counts_rather_than_requests() {
        let mut queues = queues();
        for _ in 0..4 {
            queues.enqueue(1, 1, "L").expect("waits");
            queues.enqueue(2, 1, "s").expect("waits");
        }
        assert_eq!(
            served(&mut queues, |item| if item == "L" { 0.25 } else { 0.1 }),
            "LsssLsLL",
            "a long one costs as much as two or three short ones"
        );
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut queues = queues();
        for _ in 0..5 {
            queues.enqueue(1, 1, "a").expect("waits");
        }
        assert_eq!(served(&mut queues, |_| 1.0), "aaaaa");
        for _ in 0..2 {
            queues.enqueue(1, 1, "a").expect("waits");
            queues.enqueue(2, 1, "b").expect("waits");
            queues.enqueue(2, 1, "b").expect("waits");
        }
        let order = served(&mut queues, |_| 1.0);
        assert!(order.starts_with('b') && order[..4].contains('a'), "the newcomer does not get five turns: {order}");
    }

    #[test]
    fn queues_have_an_end() {
        let mut queues = Queues::new(Some(Queuing { queue_len_max: 2, ..QUEUING }));
        assert!(queues.enqueue(1, 1, "a").is_ok() && queues.enqueue(1, 1, "a").is_ok());
        assert_eq!(queues.enqueue(1, 1, "a"), Err(Refused::Full));
        assert!(queues.enqueue(2, 1, "b").is_ok(), "another flow has another queue");
        assert_eq!(Queues::new(None).enqueue(1, 1, "a"), Err(Refused::NoQueues));
    }

    #[test]
    fn a_flow_spreads_over_its_hand() {
        let mut queues = Queues::new(Some(Queuing { hand_size: 3, queue_len_max: 1, ..QUEUING }));
        let waits = (0..5).filter(|_| queues.enqueue(7, 1, "a").is_ok()).count();
        assert_eq!(waits, 3);
    }

    #[test]
    fn whoever_leaves_is_gone_and_nothing_is_left_behind() {
        let mut queues = queues();
        let ticket = queues.enqueue(1, 5, "a").expect("waits");
        assert_eq!(queues.next_width(), Some(5));
        assert!(queues.leave(ticket) && !queues.leave(ticket));
        assert_eq!(queues.next_width(), None);
        assert!(queues.by_index.is_empty());
    }
}
