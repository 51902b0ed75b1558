//! Flags for HorizontalPodAutoscalers, and their translation into the controllers' settings.

use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;

use crate::duration;

/// Upstream's flags of the same names, with upstream's defaults.
#[derive(Args, Clone)]
pub struct Autoscaling {
    /// Time between two looks at each HorizontalPodAutoscaler.
    #[arg(long, default_value = "15s", value_parser = duration::parse)]
    pub horizontal_pod_autoscaler_sync_period: Duration,
    /// Time for which the highest recommendation counts before a workload is scaled down.
    #[arg(long, default_value = "5m", value_parser = duration::parse)]
    pub horizontal_pod_autoscaler_downscale_stabilization: Duration,
    /// Difference from 1 that the ratio of a metric to its target must exceed before a workload is scaled.
    #[arg(long, default_value_t = 0.1)]
    pub horizontal_pod_autoscaler_tolerance: f64,
    /// Time after the start of a Pod for which its use of CPU may be left out.
    #[arg(long, default_value = "5m", value_parser = duration::parse)]
    pub horizontal_pod_autoscaler_cpu_initialization_period: Duration,
    /// Time after the start of a Pod in which a change of its readiness is that of its start.
    #[arg(long, default_value = "30s", value_parser = duration::parse)]
    pub horizontal_pod_autoscaler_initial_readiness_delay: Duration,
}

impl Autoscaling {
    /// The settings of the controller.
    pub fn settings(&self) -> anyhow::Result<sched_controllers::Autoscaling> {
        let (sync_period, tolerance) = (self.horizontal_pod_autoscaler_sync_period, self.horizontal_pod_autoscaler_tolerance);
        if sync_period.is_zero() {
            bail!("--horizontal-pod-autoscaler-sync-period must be longer than 0");
        }
        if !tolerance.is_finite() || tolerance < 0.0 {
            bail!("--horizontal-pod-autoscaler-tolerance {tolerance} is not a ratio such as 0.1");
        }
        let signed =
            |flag: &str, time: Duration| time.try_into().with_context(|| format!("--horizontal-pod-autoscaler-{flag} is too long"));
        Ok(sched_controllers::Autoscaling {
            sync_period,
            downscale_stabilization: signed("downscale-stabilization", self.horizontal_pod_autoscaler_downscale_stabilization)?,
            tolerance,
            cpu_initialization_period: signed("cpu-initialization-period", self.horizontal_pod_autoscaler_cpu_initialization_period)?,
            initial_readiness_delay: signed("initial-readiness-delay", self.horizontal_pod_autoscaler_initial_readiness_delay)?,
        })
    }
}
