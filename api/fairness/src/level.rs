//! A priority level: its seats, counted without a lock, and its queues.
//!
//! A level may use its nominal number of seats. It lends some of them to other levels while it does not need them. A lent
//! seat returns when the borrower's request ends. The seats that a level does not lend are always its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use http::HeaderValue;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use crate::queues::{Queues, Queuing};
use crate::stats::{LevelReport, Stats};

/// The configured concurrency shares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    pub(crate) nominal: u64,
    pub(crate) lendable_percent: u64,
    /// Without a limit a level borrows any free seat.
    pub(crate) borrowing_percent: Option<u64>,
}

/// The configuration of a level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    nominal: u32,
    lendable: u32,
    /// `u32::MAX` means no limit.
    borrowing: u32,
    queuing: Option<Queuing>,
}

impl Settings {
    /// The seats of a level are its share of all seats. They are rounded up, so that every level with a share has at
    /// least one seat.
    pub(crate) fn new(is_exempt: bool, seats: u32, shares: Shares, total: u64, queuing: Option<Queuing>) -> Self {
        let nominal = (u64::from(seats) * shares.nominal).div_ceil(total.max(1));
        let percent = |percent: u64| narrow((nominal * percent + 50) / 100);
        let lendable = if is_exempt { 0 } else { percent(shares.lendable_percent.min(100)) };
        let borrowing = shares.borrowing_percent.map_or(u32::MAX, percent);
        Self { nominal: narrow(nominal), lendable, borrowing, queuing }
    }
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A priority level.
pub(crate) struct Level {
    pub(crate) name: String,
    uid: RwLock<HeaderValue>,
    nominal: AtomicU32,
    lendable: AtomicU32,
    borrowing: AtomicU32,
    /// The upper half has the seats that the level's own requests use, the lower half the lent seats. One number has
    /// both, so that they change atomically.
    used: AtomicU64,
    borrowed: AtomicU32,
    /// Requests in the queues. While it is zero, the queues need not be locked.
    pub(crate) waiting: AtomicU32,
    pub(crate) queues: Mutex<Queues<Waiter>>,
}

/// The seats of a request.
pub(crate) struct Grant {
    pub(crate) width: u32,
    /// The level that lends the seats; `None` if the seats are the level's own.
    pub(crate) lender: Option<Arc<Level>>,
    /// The queue that pays for the seats; `None` for a request that did not wait.
    pub(crate) queue: Option<u32>,
}

/// A request in a queue.
pub(crate) struct Waiter {
    pub(crate) stats: Arc<Stats>,
    pub(crate) since: Instant,
    /// Passes the seats to the request. Returns false if the request no longer waits; the seats are free again then.
    pub(crate) start: Box<dyn FnOnce(Grant) -> bool + Send>,
}

/// Seats used and lent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    own: u32,
    lent: u32,
}

impl Used {
    fn unpack(bits: u64) -> Self {
        Self { own: narrow(bits >> 32), lent: narrow(bits & u64::from(u32::MAX)) }
    }

    fn pack(self) -> u64 {
        u64::from(self.own) << 32 | u64::from(self.lent)
    }

    fn all(self) -> u32 {
        self.own.saturating_add(self.lent)
    }
}

impl Level {
    /// A level without seats, until it is configured.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            uid: RwLock::new(HeaderValue::from_static("")),
            nominal: AtomicU32::new(0),
            lendable: AtomicU32::new(0),
            borrowing: AtomicU32::new(0),
            used: AtomicU64::new(0),
            borrowed: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            queues: Mutex::new(Queues::new(None)),
        }
    }

    pub(crate) fn configure(&self, settings: &Settings, uid: &str) {
        *self.uid.write() = HeaderValue::from_str(uid).unwrap_or(HeaderValue::from_static(""));
        self.nominal.store(settings.nominal, Ordering::SeqCst);
        self.lendable.store(settings.lendable, Ordering::SeqCst);
        self.borrowing.store(settings.borrowing, Ordering::SeqCst);
        self.queues.lock().configure(settings.queuing);
    }

    /// Whether requests of this level never wait. Only the level `exempt` is exempt.
    pub(crate) fn is_exempt(&self) -> bool {
        self.name == "exempt"
    }

    pub(crate) fn uid(&self) -> HeaderValue {
        self.uid.read().clone()
    }

    pub(crate) fn nominal(&self) -> u32 {
        self.nominal.load(Ordering::SeqCst)
    }

    pub(crate) fn lendable(&self) -> u32 {
        self.lendable.load(Ordering::SeqCst)
    }

    pub(crate) fn borrowing(&self) -> Option<u32> {
        Some(self.borrowing.load(Ordering::SeqCst)).filter(|limit| *limit != u32::MAX)
    }

    /// Seats that the level's requests use, including borrowed ones.
    pub(crate) fn executing(&self) -> u32 {
        Used::unpack(self.used.load(Ordering::SeqCst)).own + self.borrowed.load(Ordering::SeqCst)
    }

    pub(crate) fn report(&self) -> LevelReport {
        LevelReport {
            name: self.name.clone(),
            nominal: self.nominal(),
            lendable: self.lendable(),
            borrowing: self.borrowing(),
            executing: self.executing(),
        }
    }

    /// The seats of a request, limited to those that the level can have at all.
    pub(crate) fn fitting(&self, width: u32) -> u32 {
        width.clamp(1, self.nominal().max(1))
    }

    /// Takes the level's own seats; false if too few are free.
    pub(crate) fn take(&self, width: u32) -> bool {
        self.change(|used| {
            let own = Used { own: used.own.saturating_add(width), ..used };
            (self.is_exempt() || own.all() <= self.nominal()).then_some(own)
        })
    }

    pub(crate) fn give_back(&self, width: u32) {
        self.change(|used| Some(Used { own: used.own.saturating_sub(width), ..used }));
    }

    /// Lends seats to another level; false if too few are free.
    pub(crate) fn lend(&self, width: u32) -> bool {
        self.change(|used| {
            let lent = Used { lent: used.lent.saturating_add(width), ..used };
            (lent.lent <= self.lendable() && lent.all() <= self.nominal()).then_some(lent)
        })
    }

    pub(crate) fn take_back(&self, width: u32) {
        self.change(|used| Some(Used { lent: used.lent.saturating_sub(width), ..used }));
    }

    /// Counts seats as borrowed; false if the borrowing limit does not allow them.
    pub(crate) fn borrow(&self, width: u32) -> bool {
        let limit = self.borrowing.load(Ordering::SeqCst);
        let more = |borrowed: u32| borrowed.checked_add(width).filter(|sum| *sum <= limit);
        self.borrowed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    pub(crate) fn return_borrowed(&self, width: u32) {
        self.borrowed.fetch_sub(width, Ordering::SeqCst);
    }

    fn change(&self, step: impl Fn(Used) -> Option<Used>) -> bool {
        let step = |bits| step(Used::unpack(bits)).map(Used::pack);
        self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, step).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(nominal: u64, lendable_percent: u64, borrowing_percent: Option<u64>) -> Level {
        let level = Level::new("l");
        let shares = Shares { nominal, lendable_percent, borrowing_percent };
        level.configure(&Settings::new(false, narrow(nominal), shares, nominal, None), "");
        level
    }

    #[test]
    fn a_level_has_its_seats_and_no_more() {
        let level = level(3, 0, None);
        assert!(level.take(2) && !level.take(2) && level.take(1) && !level.take(1));
        level.give_back(2);
        assert!(level.take(2));
        assert_eq!(level.executing(), 3);
    }

    #[test]
    fn what_is_lent_is_limited_and_counts() {
        let level = level(10, 50, None);
        assert!(level.lend(5) && !level.lend(1), "half of it and no more");
        assert!(level.take(5) && !level.take(1), "the other half is its own");
        level.take_back(5);
        assert!(level.take(1) && level.lend(4) && !level.lend(1), "nothing is lent that is in use");
    }

    #[test]
    fn borrowing_may_be_limited() {
        let level = level(10, 0, Some(20));
        assert!(level.borrow(2) && !level.borrow(1));
        level.return_borrowed(1);
        assert!(level.borrow(1));
    }

    #[test]
    fn a_request_is_never_too_wide_for_its_level() {
        assert_eq!([0, 1, 5, 50].map(|width| level(5, 0, None).fitting(width)), [1, 1, 5, 5]);
    }
}
