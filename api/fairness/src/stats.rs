//! Counters for metrics, by schema and level.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::error::Rejected;

/// Upstream's upper bounds of the buckets of waiting times, in seconds.
pub const WAIT_BUCKETS: [f64; 12] = [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0];

/// The counters of one schema at one level.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    dispatched: AtomicU64,
    rejected: [AtomicU64; 3],
    inqueue: AtomicU32,
    executing: AtomicU32,
    seats: AtomicU32,
    waits: [AtomicU64; WAIT_BUCKETS.len()],
    wait_nanos: AtomicU64,
    run_nanos: AtomicU64,
    ended: AtomicU64,
}

const REASONS: [Rejected; 3] = [Rejected::ConcurrencyLimit, Rejected::QueueFull, Rejected::TimeOut];

impl Stats {
    pub(crate) fn rejected(&self, why: Rejected) {
        if let Some((_, count)) = REASONS.iter().zip(&self.rejected).find(|(reason, _)| **reason == why) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn queued(&self, more: u32) {
        self.inqueue.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn dequeued(&self) {
        self.inqueue.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn waited(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.dispatched.fetch_add(1, Ordering::Relaxed);
        self.wait_nanos.fetch_add(nanos(time), Ordering::Relaxed);
        if let Some((_, bucket)) = WAIT_BUCKETS.iter().zip(&self.waits).find(|(bound, _)| seconds <= **bound) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn started(&self, width: u32) {
        self.executing.fetch_add(1, Ordering::Relaxed);
        self.seats.fetch_add(width, Ordering::Relaxed);
    }

    pub(crate) fn ended(&self, width: u32, took: Duration) {
        self.executing.fetch_sub(1, Ordering::Relaxed);
        self.seats.fetch_sub(width, Ordering::Relaxed);
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.run_nanos.fetch_add(nanos(took), Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Flow {
        let mut waits = [0; WAIT_BUCKETS.len()];
        let mut so_far = 0;
        for (sum, bucket) in waits.iter_mut().zip(&self.waits) {
            so_far += bucket.load(Ordering::Relaxed);
            *sum = so_far;
        }
        let seconds = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Ordering::Relaxed)).as_secs_f64();
        Flow {
            dispatched: self.dispatched.load(Ordering::Relaxed),
            rejected: REASONS.iter().zip(&self.rejected).map(|(why, count)| (*why, count.load(Ordering::Relaxed))).collect(),
            inqueue: self.inqueue.load(Ordering::Relaxed),
            executing: self.executing.load(Ordering::Relaxed),
            seats: self.seats.load(Ordering::Relaxed),
            waits,
            wait_seconds: seconds(&self.wait_nanos),
            run_seconds: seconds(&self.run_nanos),
            ended: self.ended.load(Ordering::Relaxed),
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The values of the counters of one schema at one level.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flow {
    /// Requests that got a seat.
    pub dispatched: u64,
    /// Rejected requests, by reason.
    pub rejected: Vec<(Rejected, u64)>,
    /// Waiting requests.
    pub inqueue: u32,
    /// Executing requests.
    pub executing: u32,
    /// Seats of the executing requests.
    pub seats: u32,
    /// Requests that waited at most as long as each of [`WAIT_BUCKETS`].
    pub waits: [u64; WAIT_BUCKETS.len()],
    /// The sum of their waiting times.
    pub wait_seconds: f64,
    /// The sum of the execution times of ended requests.
    pub run_seconds: f64,
    /// Ended requests.
    pub ended: u64,
}

/// Seats of one level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelReport {
    /// Name.
    pub name: String,
    /// Nominal seats.
    pub nominal: u32,
    /// Seats that the level can lend.
    pub lendable: u32,
    /// Seats that the level may borrow; `None` means no limit.
    pub borrowing: Option<u32>,
    /// Seats of the level's executing requests.
    pub executing: u32,
}

/// The counters of all schemas and levels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Schema, level and counters.
    pub flows: Vec<(String, String, Flow)>,
    /// The levels.
    pub levels: Vec<LevelReport>,
}
