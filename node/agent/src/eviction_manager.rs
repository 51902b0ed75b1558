//! The eviction manager: two loops that perform what [`crate::eviction`] decides. [`node_pressure`] acts when memory, disk or
//! process ids run short, [`local_storage`] when a Pod uses more local storage than it may. [`observe()`] reads the signals,
//! [`measure`] what a Pod has on the disk.

pub(crate) mod local_storage;
pub(crate) mod measure;
pub(crate) mod node_pressure;
mod observe;

use crate::config::Config;
use crate::eviction::Pressure;
use crate::eviction::state::State;
use crate::parts::Parts;
use observe::observe;

/// The conditions at the start, before the first round.
pub(crate) fn initial_pressure(config: &Config, parts: &Parts) -> Pressure {
    let observed = observe(&config.data_dir, parts.images.dir().as_deref(), &config.proc_dir);
    State::default().look(&config.eviction_thresholds, &observed.signals, std::time::Duration::MAX, tokio::time::Instant::now()).pressure
}
