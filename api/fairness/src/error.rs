//! Why a request is rejected.

use thiserror::Error;

/// Why a request is rejected. The texts are upstream's `reason` label in metrics.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Rejected {
    /// The level has no queues.
    #[error("concurrency-limit")]
    ConcurrencyLimit,
    /// All queues that the flow may use are full.
    #[error("queue-full")]
    QueueFull,
    /// The request waited for the maximum time.
    #[error("time-out")]
    TimeOut,
}
