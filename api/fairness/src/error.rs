//! Why a request gets no seat.

use thiserror::Error;

/// A request gets no seat. The texts are upstream's `reason` label in metrics.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Rejected {
    /// The level has no queues.
    #[error("concurrency-limit")]
    ConcurrencyLimit,
    /// All queues that the flow may use are full.
    #[error("queue-full")]
    QueueFull,
    /// The request waited as long as a request may.
    #[error("time-out")]
    TimeOut,
}
