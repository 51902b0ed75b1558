//! Flags for what must stay free on a node, and for the Pods that it evicts otherwise.

use std::time::Duration;

use clap::Args;
use node_agent::{MinimumReclaim, SoftAmounts, SoftGracePeriods, ThresholdError, Thresholds};

use crate::duration;

/// Upstream's flags of the same names, with upstream's defaults.
#[derive(Args, Clone)]
pub struct Eviction {
    /// Eviction thresholds, as `signal<quantity` or `signal<percent%`: below a threshold the node accepts no
    /// further Pods and evicts Pods. Signals: memory.available, nodefs.available, nodefs.inodesFree,
    /// imagefs.available, imagefs.inodesFree, pid.available.
    #[arg(
        long,
        default_value = "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,imagefs.inodesFree<5%"
    )]
    pub eviction_hard: Thresholds,
    /// Soft eviction thresholds, in the same form: below one for its grace period, the node evicts Pods and gives them time to end.
    #[arg(long, default_value = "")]
    pub eviction_soft: SoftAmounts,
    /// Grace period of each soft eviction threshold, as `signal=duration`, for example memory.available=1m30s.
    #[arg(long, default_value = "")]
    pub eviction_soft_grace_period: SoftGracePeriods,
    /// Maximum number of seconds that a Pod gets to end when it is evicted for a soft threshold; a negative number gives the time of the Pod.
    #[arg(long, default_value_t = 0, allow_hyphen_values = true)]
    pub eviction_max_pod_grace_period: i32,
    /// Amount that an eviction frees beyond the threshold, as `signal=quantity` or `signal=percent%`.
    #[arg(long, default_value = "")]
    pub eviction_minimum_reclaim: MinimumReclaim,
    /// Time for which the node reports pressure after the pressure has ended.
    #[arg(long, default_value = "5m0s", value_parser = duration::parse)]
    pub eviction_pressure_transition_period: Duration,
}

impl Eviction {
    /// Sets the thresholds and what is done about them.
    pub fn apply(&self, config: &mut node_agent::Config) -> Result<(), ThresholdError> {
        let hard = self.eviction_hard.clone().with_minimum_reclaim(self.eviction_minimum_reclaim.clone());
        config.eviction_thresholds = hard.with_soft(self.eviction_soft.clone(), &self.eviction_soft_grace_period)?;
        // A negative value is no limit, as upstream documents it.
        let most = i64::from(self.eviction_max_pod_grace_period);
        config.eviction_pod_grace_period_max = if most < 0 { i64::MAX } else { most };
        config.eviction_pressure_transition_period = self.eviction_pressure_transition_period;
        Ok(())
    }
}
