//! The scheduler: gives each Pod that has no node one that fits, best first.
//!
//! Watches Pods and Nodes; writes Pod bindings, the `PodScheduled` condition and events; never
//! deletes anything. One task owns cache and queue and runs one cycle after the other; a cycle works
//! on memory alone. Binding goes on beside it, the Pod being assumed on its node meanwhile.

mod bind;
mod cache;
mod cycle;
mod plugins;
mod queue;
mod run;

pub use run::{Config, run};
