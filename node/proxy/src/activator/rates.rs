//! New connections a second, from counters that only grow.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// The time over which a rate is averaged.
pub(super) const WINDOW: Duration = Duration::from_secs(15);

/// The last values of each counter.
#[derive(Default)]
pub(super) struct Rates {
    samples: HashMap<String, VecDeque<(Instant, u64)>>,
    last: Option<Instant>,
}

impl Rates {
    /// Takes the values of all counters in. A counter that is new, or less than before, has begun at zero.
    pub(super) fn observe(&mut self, now: Instant, totals: &BTreeMap<String, u64>) {
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

    /// The rate of a counter in thousandths.
    pub(super) fn milli_per_second(&self, name: &str) -> u64 {
        let Some(((began, before), (ended, total))) = self.samples.get(name).and_then(|samples| samples.front().zip(samples.back())) else {
            return 0;
        };
        let millis = u64::try_from(ended.saturating_duration_since(*began).as_millis()).unwrap_or(u64::MAX);
        // A rate that is not zero stays above zero.
        total.saturating_sub(*before).saturating_mul(1_000_000).div_ceil(millis.max(1))
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
}
