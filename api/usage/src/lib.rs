//! The use of CPU and memory of nodes and Pods, as a metrics server computes it.
//!
//! A node answers `/metrics/resource` with counters. [`Answer`] reads that text within bounds and accepts only what the node may
//! say: its own use, and that of Pods that are bound to it. [`Readings`] has the last two points of each container and of each
//! node, and computes the use between them. Nothing here connects to anything.

mod answer;
mod error;
mod line;
mod readings;

pub use answer::{Answer, NodeReading, PodReading};
pub use error::AnswerError;
pub use readings::{ContainerUse, Readings, Use, Used};

/// The counters of a container or a node at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// When the container started, in ms since the epoch; 0 if the node does not say it.
    pub started_ms: i64,
    /// When the counters were read, in ms since the epoch.
    pub read_ms: i64,
    /// The CPU time used since the start, in ns.
    pub cpu_ns: u64,
    /// The working set, in bytes.
    pub memory_bytes: u64,
}
