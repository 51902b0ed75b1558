//! CPU use per second, from two readings of CPU time. Pure but for the lock.

use std::collections::HashMap;

use jiff::Timestamp;
use parking_lot::Mutex;

/// Two readings that are nearer than this make no rate: in so short a time the use says little.
const APART_MIN_NS: i128 = 5_000_000_000;
const NANOSECONDS: u128 = 1_000_000_000;

/// The latest readings, by the name of what was read.
#[derive(Default)]
pub(crate) struct CpuRates {
    latest: Mutex<HashMap<String, Reading>>,
}

#[derive(Clone, Copy)]
struct Reading {
    at: Timestamp,
    cpu_ns: u64,
    /// The rate until this reading.
    rate: Option<u64>,
}

impl CpuRates {
    /// Adds readings of CPU time in ns. Returns the rate of each in ns a second; one that was read for the first time has none. What is
    /// not read any more is forgotten.
    pub(crate) fn add(&self, readings: Vec<(String, u64)>, now: Timestamp) -> HashMap<String, u64> {
        let mut latest = self.latest.lock();
        let before = std::mem::take(&mut *latest);
        for (name, cpu_ns) in readings {
            let reading = next(before.get(&name).copied(), cpu_ns, now);
            latest.insert(name, reading);
        }
        latest.iter().filter_map(|(name, reading)| Some((name.clone(), reading.rate?))).collect()
    }
}

fn next(before: Option<Reading>, cpu_ns: u64, now: Timestamp) -> Reading {
    let first = Reading { at: now, cpu_ns, rate: None };
    // CPU time that goes back is that of another instance.
    let Some(before) = before.filter(|before| before.cpu_ns <= cpu_ns) else { return first };
    let elapsed = now.as_nanosecond() - before.at.as_nanosecond();
    if elapsed < APART_MIN_NS {
        return before;
    }
    let used = u128::from(cpu_ns - before.cpu_ns);
    let rate = used * NANOSECONDS / elapsed.unsigned_abs();
    Reading { rate: Some(u64::try_from(rate).unwrap_or(u64::MAX)), ..first }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_between_two_readings_that_are_apart() {
        let at = |second: i64| Timestamp::from_second(second).expect("in range");
        let rates = CpuRates::default();
        let read = |cpu_ns: u64, second: i64| rates.add(vec![("c".to_owned(), cpu_ns)], at(second)).get("c").copied();
        assert_eq!(read(1_000_000_000, 0), None, "the first");
        assert_eq!(read(2_000_000_000, 1), None, "too early");
        assert_eq!(read(6_000_000_000, 10), Some(500_000_000));
        assert_eq!(read(6_000_000_000, 11), Some(500_000_000), "the latest");
        assert_eq!(read(6_000_000_000, 20), Some(0));
        assert_eq!(read(1_000, 30), None, "another instance");
        assert!(rates.add(Vec::new(), at(31)).is_empty());
        assert_eq!(read(2_000, 40), None, "forgotten meanwhile");
    }
}
