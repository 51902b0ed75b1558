//! Answers of the API server about clients of the node, which stay in use for a while, as the kubelet's do.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

/// The highest number of answers.
const ANSWERS_MAX: usize = 1_024;

/// What an answer is about, as a digest: a token itself is not stored.
pub(super) type Question = [u8; 32];

/// The question of these parts.
pub(super) fn question<'a>(parts: impl IntoIterator<Item = &'a str>) -> Question {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.len().to_le_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

/// The answers, each with the time at which it is asked for again.
#[derive(Default)]
pub(super) struct Verdicts<T>(Mutex<HashMap<Question, (Instant, T)>>);

impl<T: Clone> Verdicts<T> {
    /// The answer to a question, unless it is too old.
    pub(super) fn get(&self, question: &Question) -> Option<T> {
        self.0.lock().get(question).filter(|(until, _)| Instant::now() < *until).map(|(_, answer)| answer.clone())
    }

    /// Stores an answer for a while. When there are too many, the one that is too old first goes.
    pub(super) fn put(&self, question: Question, answer: T, ttl: Duration) {
        let mut answers = self.0.lock();
        if answers.len() >= ANSWERS_MAX && !answers.contains_key(&question) {
            let first = answers.iter().min_by_key(|(_, (until, _))| *until).map(|(question, _)| *question);
            first.and_then(|first| answers.remove(&first));
        }
        answers.insert(question, (Instant::now() + ttl, answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_grow_old_and_are_bounded() {
        let answers = Verdicts::default();
        let first = question(["user", "a"]);
        assert_ne!(first, question(["use", "ra"]));
        answers.put(first, true, Duration::from_secs(10));
        assert_eq!(answers.get(&first), Some(true));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(answers.get(&first), None);
        for number in 0..2 * ANSWERS_MAX {
            answers.put(question([number.to_string().as_str()]), true, Duration::from_secs(10));
        }
        assert_eq!(answers.0.lock().len(), ANSWERS_MAX);
        assert_eq!(answers.get(&question([(2 * ANSWERS_MAX - 1).to_string().as_str()])), Some(true));
    }
}
