//! Averages over the last seconds: rates from counters that only grow, and means of values that go up and down.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// The time over which rates and means are averaged.
pub const WINDOW: Duration = Duration::from_secs(15);

/// The last values of each counter.
#[derive(Default)]
pub struct Rates {
    samples: HashMap<String, VecDeque<(Instant, u64)>>,
    last: Option<Instant>,
}

impl Rates {
    /// Takes the values of all counters in. A counter that is new, or less than before, has begun at zero.
    pub fn observe(&mut self, now: Instant, totals: &BTreeMap<String, u64>) {
        let began = self.last.replace(now);
        self.samples.retain(|name, _| totals.contains_key(name));
        for (name, total) in totals {
            let samples = self.samples.entry(name.clone()).or_default();
            if samples.back().is_some_and(|(_, before)| total < before) {
                samples.clear();
            }
            if samples.is_empty() {
                samples.extend(began.map(|began| (began, 0)));
            }
            samples.push_back((now, *total));
            // The oldest sample is the last one before the window.
            while samples.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= WINDOW) {
                samples.pop_front();
            }
        }
    }

    /// Takes in a counter that was there before it was observed: its value until now belongs to no rate.
    pub fn begin(&mut self, now: Instant, name: &str, total: u64) {
        self.samples.insert(name.to_owned(), VecDeque::from([(now, total)]));
    }

    /// Whether a counter is observed.
    pub fn has(&self, name: &str) -> bool {
        self.samples.contains_key(name)
    }

    /// The rate of a counter in thousandths.
    pub fn milli_per_second(&self, name: &str) -> u64 {
        let Some(((began, before), (ended, total))) = self.samples.get(name).and_then(|samples| samples.front().zip(samples.back())) else {
            return 0;
        };
        let millis = u64::try_from(ended.saturating_duration_since(*began).as_millis()).unwrap_or(u64::MAX);
        // A rate that is not zero stays above zero.
        total.saturating_sub(*before).saturating_mul(1_000_000).div_ceil(millis.max(1))
    }
}

/// The last values of each gauge.
#[derive(Default)]
pub struct Means {
    samples: HashMap<String, VecDeque<(Instant, u64)>>,
}

impl Means {
    /// Takes the values of all gauges in.
    pub fn observe(&mut self, now: Instant, values: &BTreeMap<String, u64>) {
        self.samples.retain(|name, _| values.contains_key(name));
        for (name, value) in values {
            let samples = self.samples.entry(name.clone()).or_default();
            samples.push_back((now, *value));
            while samples.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) >= WINDOW) {
                samples.pop_front();
            }
        }
    }

    /// The mean of a gauge in thousandths.
    pub fn milli(&self, name: &str) -> u64 {
        let Some(samples) = self.samples.get(name) else { return 0 };
        let sum = samples.iter().fold(0_u64, |sum, (_, value)| sum.saturating_add(*value));
        // A mean that is not zero stays above zero.
        sum.saturating_mul(1_000).div_ceil(u64::try_from(samples.len().max(1)).unwrap_or(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_averages_over_the_window() {
        let (start, mut rates) = (Instant::now(), Rates::default());
        let mut observe = |seconds: u64, total: Option<u64>| {
            let totals = total.map(|total| ("web".to_owned(), total)).into_iter().collect();
            rates.observe(start + Duration::from_secs(seconds), &totals);
            rates.milli_per_second("web")
        };
        assert_eq!(observe(0, None), 0);
        assert_eq!(observe(5, Some(10)), 2_000, "a new counter has begun at zero");
        assert_eq!(observe(10, Some(10)), 1_000);
        assert_eq!(observe(15, Some(40)), 2_667);
        assert_eq!(observe(20, Some(40)), 2_000, "from second 5 on");
        assert_eq!(observe(25, Some(40)), 2_000);
        assert_eq!(observe(30, Some(40)), 0);
        assert_eq!(observe(35, Some(41)), 67, "one connection");
        assert_eq!(observe(40, Some(5)), 1_000, "the counter has begun again");
        assert_eq!(observe(45, None), 0);
    }

    #[test]
    fn the_first_look_knows_no_rate() {
        let mut rates = Rates::default();
        rates.observe(Instant::now(), &[("web".to_owned(), 1_000_000)].into());
        assert_eq!(rates.milli_per_second("web"), 0);
    }

    #[test]
    fn a_counter_that_was_there_before_has_no_rate_yet() {
        let (start, mut rates) = (Instant::now(), Rates::default());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let totals = |total: u64| [("old".to_owned(), total)].into();
        rates.observe(at(0), &BTreeMap::new());
        assert!(!rates.has("old"));
        rates.begin(at(5), "old", 1_000_000);
        rates.observe(at(5), &totals(1_000_000));
        assert!(rates.has("old"));
        assert_eq!(rates.milli_per_second("old"), 0);
        rates.observe(at(10), &totals(1_000_005));
        assert_eq!(rates.milli_per_second("old"), 1_000);
    }

    #[test]
    fn means_are_of_the_last_samples() {
        let (start, mut means) = (Instant::now(), Means::default());
        let mut observe = |seconds: u64, value: Option<u64>| {
            means.observe(start + Duration::from_secs(seconds), &value.map(|value| ("web".to_owned(), value)).into_iter().collect());
            means.milli("web")
        };
        assert_eq!(observe(0, Some(3)), 3_000);
        assert_eq!(observe(5, Some(0)), 1_500);
        assert_eq!(observe(10, Some(1)), 1_334);
        assert_eq!(observe(15, Some(0)), 334, "the first one is too old");
        assert_eq!(observe(20, Some(0)), 334);
        assert_eq!(observe(25, Some(0)), 0);
        assert_eq!(observe(30, None), 0);
        assert_eq!(observe(35, Some(u64::MAX)), u64::MAX, "no overflow");
    }
}
