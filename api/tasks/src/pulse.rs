//! The liveness of a loop.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Time for the next beat of a loop that seems stuck. After a stopped process or a sleeping machine continues, the last
/// beat is old.
const GRACE: Duration = Duration::from_secs(2);

/// A loop records a beat in each iteration. It must iterate from time to time even while it is idle.
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
    /// Records an iteration.
    pub fn beat(&self) {
        self.last.send_replace(Instant::now());
    }

    /// Time since the last beat.
    pub fn age(&self) -> Duration {
        self.last.borrow().elapsed()
    }

    /// Whether the last beat is at most `age_max` old, or the next beat comes within a moment.
    pub async fn is_alive(&self, age_max: Duration) -> bool {
        if self.age() <= age_max {
            return true;
        }
        let mut last = self.last.subscribe();
        matches!(tokio::time::timeout(GRACE, last.changed()).await, Ok(Ok(())))
    }
}
