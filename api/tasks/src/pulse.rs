//! A loop's sign of life.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// How long a loop that seems to stand still may take to show that it does not: a process that was stopped or a
/// machine that slept comes back with an old pulse.
const GRACE: Duration = Duration::from_secs(2);

/// Beats with each turn of a loop. The loop must turn from time to time even where nothing happens.
#[derive(Debug)]
pub struct Pulse {
    last: watch::Sender<Instant>,
}

impl Default for Pulse {
    fn default() -> Self {
        Self { last: watch::Sender::new(Instant::now()) }
    }
}

impl Pulse {
    /// The loop turns.
    pub fn beat(&self) {
        self.last.send_replace(Instant::now());
    }

    /// How long ago the last beat was.
    pub fn age(&self) -> Duration {
        self.last.borrow().elapsed()
    }

    /// Whether the loop has turned within that time, or does within a moment.
    pub async fn is_alive(&self, age_max: Duration) -> bool {
        if self.age() <= age_max {
            return true;
        }
        let mut last = self.last.subscribe();
        matches!(tokio::time::timeout(GRACE, last.changed()).await, Ok(Ok(())))
    }
}
