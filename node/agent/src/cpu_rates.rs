//! CPU use per second, from two readings of CPU time.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Two readings that are nearer than this make no rate: in so short a time the use says little.
const APART_MIN: Duration = Duration::from_secs(5);
const NANOSECONDS: u128 = 1_000_000_000;

/// A reading of CPU time.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// What was read.
    pub(crate) of: String,
    /// When it started: another instance counts from zero.
    pub(crate) started_at: Option<Timestamp>,
    /// Its CPU time since then, in ns.
    pub(crate) cpu_ns: u64,
}

/// The latest readings, by the name of what was read.
#[derive(Default)]
pub(crate) struct CpuRates {
    latest: Mutex<HashMap<String, Latest>>,
}

#[derive(Clone, Copy)]
struct Latest {
    at: Instant,
    started_at: Option<Timestamp>,
    cpu_ns: u64,
    /// The rate until this reading.
    rate: Option<u64>,
}

impl CpuRates {
    /// Adds the readings of all that is read. Returns the rate of each in ns a second; what was read for the first time has none. What is
    /// not among the readings is forgotten.
    pub(crate) fn add(&self, readings: Vec<Reading>, now: Instant) -> HashMap<String, u64> {
        let mut latest = self.latest.lock();
        let before = std::mem::take(&mut *latest);
        for reading in readings {
            let next = next(before.get(&reading.of).copied(), &reading, now);
            latest.insert(reading.of, next);
        }
        latest.iter().filter_map(|(name, latest)| Some((name.clone(), latest.rate?))).collect()
    }
}

fn next(before: Option<Latest>, reading: &Reading, now: Instant) -> Latest {
    let first = Latest { at: now, started_at: reading.started_at, cpu_ns: reading.cpu_ns, rate: None };
    let Some(before) = before.filter(|before| before.started_at == reading.started_at) else { return first };
    let elapsed = now.saturating_duration_since(before.at);
    // A reading with less CPU time is older: two readers may overtake each other.
    let Some(used) = reading.cpu_ns.checked_sub(before.cpu_ns).filter(|_| elapsed >= APART_MIN) else { return before };
    let rate = (u128::from(used) * NANOSECONDS).checked_div(elapsed.as_nanos()).and_then(|rate| u64::try_from(rate).ok());
    Latest { rate, ..first }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_between_two_readings_that_are_apart() {
        let (base, rates) = (Instant::now(), CpuRates::default());
        let started = |second: i64| Some(Timestamp::from_second(second).expect("in range"));
        let read = |cpu_ns: u64, instance: i64, second: u64| {
            let reading = Reading { of: "c".to_owned(), started_at: started(instance), cpu_ns };
            rates.add(vec![reading], base + Duration::from_secs(second)).get("c").copied()
        };
        assert_eq!(read(1_000_000_000, 1, 0), None, "the first");
        assert_eq!(read(2_000_000_000, 1, 1), None, "too early");
        assert_eq!(read(6_000_000_000, 1, 10), Some(500_000_000));
        assert_eq!(read(6_000_000_000, 1, 11), Some(500_000_000), "the latest");
        assert_eq!(read(5_000_000_000, 1, 17), Some(500_000_000), "an older reading");
        assert_eq!(read(6_000_000_000, 1, 20), Some(0));
        assert_eq!(read(7_000_000_000, 2, 30), None, "another instance");
        assert!(rates.add(Vec::new(), base + Duration::from_secs(31)).is_empty());
        assert_eq!(read(8_000_000_000, 2, 40), None, "forgotten meanwhile");
    }
}
