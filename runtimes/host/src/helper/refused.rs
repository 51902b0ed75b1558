//! Inputs that exceeded a limit or were malformed: they would do so again, so the last result is returned for a while. That
//! time grows as the kubelet's back-off does, up to an hour.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the first answer is good.
const INITIAL: Duration = Duration::from_secs(300);
const MAX: Duration = Duration::from_secs(3_600);
/// Inputs that are remembered.
const COUNT_MAX: usize = 256;

#[derive(Clone, Debug)]
struct Refusal {
    why: String,
    until: Instant,
    wait: Duration,
}

/// The rejected inputs, by digest.
#[derive(Debug, Default)]
pub struct Refused(Mutex<HashMap<String, Refusal>>);

impl Refused {
    /// A thread that panicked with the lock had changed at most one entry.
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Refusal>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why this input is rejected, when it must not be tried now.
    pub fn why(&self, digest: &str, now: Instant) -> Option<String> {
        self.lock().get(digest).filter(|refusal| now < refusal.until).map(|refusal| refusal.why.clone())
    }

    /// Remembers a rejection; the next one of the same input lasts twice as long. Nothing changes while one lasts.
    pub fn add(&self, digest: &str, why: &str, now: Instant) {
        let mut all = self.lock();
        if all.get(digest).is_some_and(|refusal| now < refusal.until) {
            return;
        }
        let wait = all.get(digest).map_or(INITIAL, |before| (before.wait * 2).min(MAX));
        if all.len() >= COUNT_MAX && !all.contains_key(digest) {
            let oldest = all.iter().min_by_key(|(_, refusal)| refusal.until).map(|(digest, _)| digest.clone());
            if let Some(oldest) = oldest {
                all.remove(&oldest);
            }
        }
        all.insert(digest.to_owned(), Refusal { why: why.to_owned(), until: now + wait, wait });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_input_is_tried_less_and_less_often() {
        let refused = Refused::default();
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..6 {
            assert_eq!(refused.why("a", now), None);
            refused.add("a", "too large", now);
            refused.add("a", "again", now);
            assert_eq!(refused.why("a", now).as_deref(), Some("too large"));
            let begun = now;
            while refused.why("a", now).is_some() {
                now += Duration::from_secs(10);
            }
            waits.push((now - begun).as_secs());
        }
        assert_eq!(waits, [300, 600, 1_200, 2_400, 3_600, 3_600]);
        for number in 0..1_000 {
            refused.add(&number.to_string(), "", now);
        }
        assert_eq!(refused.lock().len(), COUNT_MAX);
    }
}
