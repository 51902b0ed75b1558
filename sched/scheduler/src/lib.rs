//! The scheduler: binds each Pod without a node to the best node that fits.
//!
//! It watches Pods and Nodes; it writes Pod bindings, the `PodScheduled` condition and events; it never deletes anything. One
//! task owns the cache and the scheduling queue and runs one cycle after the other; a cycle works on memory alone. Other tasks
//! write the bindings, while the cache assumes the Pod on its node.

mod bind;
mod cache;
mod cycle;
mod plugins;
mod queue;
mod run;

pub use run::{Config, run};
