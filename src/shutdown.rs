//! Flags for how long Pods have to end when the machine shuts down.

use std::time::Duration;

use clap::Args;
use node_agent::{PriorityGracePeriods, ShutdownGracePeriodError, ShutdownGracePeriods};

use crate::duration;

/// Upstream's settings of a kubelet's configuration file, with upstream's defaults.
#[derive(Args, Clone)]
pub struct Shutdown {
    /// Time by which systemd delays a shutdown of the machine so that Pods can end; 0 disables this.
    #[arg(long, default_value = "0s", value_parser = duration::parse)]
    pub shutdown_grace_period: Duration,
    /// Part of --shutdown-grace-period that critical Pods have, after all others.
    #[arg(long, default_value = "0s", value_parser = duration::parse)]
    pub shutdown_grace_period_critical_pods: Duration,
    /// Time of each group of Pods instead, by the lowest priority of the group, for example 0=1m,10000=30s,2000000000=10s. Groups end
    /// one after the other.
    #[arg(long, default_value = "")]
    pub shutdown_grace_period_by_pod_priority: PriorityGracePeriods,
}

impl Shutdown {
    /// The groups, in the order in which they end.
    pub fn periods(&self) -> Result<ShutdownGracePeriods, ShutdownGracePeriodError> {
        let by_priority = self.shutdown_grace_period_by_pod_priority.clone();
        ShutdownGracePeriods::new(self.shutdown_grace_period, self.shutdown_grace_period_critical_pods, by_priority)
    }
}
