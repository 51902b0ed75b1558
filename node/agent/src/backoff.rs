//! Upstream's exponential back-off, for restarts and for pulls: 10 s, doubled to 300 s, forgotten when
//! nothing happened for twice that. Pure; the times are those of a clock that nobody sets ([`api_clock::steady`]),
//! but for the end of a container that was adopted, which its status has.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// First wait.
pub(crate) const INITIAL: SignedDuration = SignedDuration::from_secs(10);
/// Longest wait.
pub(crate) const MAX: SignedDuration = SignedDuration::from_secs(300);

/// How long to wait after the next failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backoff {
    /// The present wait, and when it was last extended; `None` before the first failure.
    entry: Option<(SignedDuration, Timestamp)>,
}

impl Backoff {
    /// The back-off after `failures` failures, the last at `at`: for a worker that adopts a Pod.
    pub(crate) fn after(failures: u32, at: Timestamp) -> Self {
        let mut backoff = Self::default();
        for _ in 0..failures.min(8) {
            backoff.next(at);
        }
        backoff
    }

    /// The wait now; zero before the first failure.
    pub(crate) fn delay(&self) -> SignedDuration {
        self.entry.map_or(SignedDuration::ZERO, |(delay, _)| delay)
    }

    /// When what ended at `ended` may start again.
    pub(crate) fn until(&self, ended: Timestamp) -> Timestamp {
        match self.entry {
            Some((delay, since)) if ended.duration_since(since) <= MAX * 2 => ended.checked_add(delay).unwrap_or(ended),
            _ => ended,
        }
    }

    /// Counts one more failure at `now`.
    pub(crate) fn next(&mut self, now: Timestamp) {
        let delay = match self.entry {
            Some((delay, since)) if now.duration_since(since) <= MAX * 2 => (delay * 2).min(MAX),
            _ => INITIAL,
        };
        self.entry = Some((delay, now));
    }
}

/// The whole seconds of a delay in Go's spelling: `10s`, `1m20s`, `5m0s`.
pub(crate) fn go_duration(duration: SignedDuration) -> String {
    api_model::go::duration_text(Duration::from_secs(duration.as_secs().unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    #[test]
    fn doubles_to_the_limit_and_forgets() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.until(at(5)), at(5), "the first restart is at once");
        let mut waits = Vec::new();
        let mut now = 0;
        for _ in 0..7 {
            backoff.next(at(now));
            waits.push(backoff.delay().as_secs());
            now += backoff.delay().as_secs();
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff.until(at(now)), at(now + 300));
        let later = now + 601;
        assert_eq!(backoff.until(at(later)), at(later), "forgotten after ten quiet minutes");
        backoff.next(at(later));
        assert_eq!(backoff.delay().as_secs(), 10);
        assert_eq!(Backoff::after(3, at(0)).delay().as_secs(), 40);
    }

    #[test]
    fn durations_read_like_gos() {
        for (seconds, wanted) in [(10, "10s"), (80, "1m20s"), (300, "5m0s"), (3_725, "1h2m5s")] {
            assert_eq!(go_duration(SignedDuration::from_secs(seconds)), wanted);
        }
    }
}
