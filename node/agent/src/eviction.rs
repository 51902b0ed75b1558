//! Eviction: what the node does when memory, disk or process ids run short, and when a Pod uses more local storage than it may.
//! The input is observations of the machine and measurements of Pods; the output is the node's pressure conditions and at most
//! one Pod a round, which its worker ends as `Failed` with reason `Evicted`.
//!
//! The decisions are pure and follow the kubelet: [`state`] (which threshold is met, which condition holds), [`rank`]
//! (which Pod is first), [`limits`] (which Pod exceeds its own limit), [`message`] (the words), [`admission`] (which Pods the
//! node still takes). The eviction manager has the two loops that perform them.

mod admission;
pub(crate) mod limits;
pub(crate) mod message;
pub(crate) mod rank;
pub(crate) mod signal;
pub(crate) mod state;
mod threshold;
pub(crate) mod usage;

pub use threshold::{MinimumReclaim, SoftAmounts, SoftGracePeriods, ThresholdError, Thresholds};

pub(crate) use admission::refusal;
pub(crate) use signal::Pressure;
pub(crate) use threshold::ThresholdKey;
