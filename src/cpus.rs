//! Flags for what a node keeps of its CPUs and memory, and for which containers have CPUs of their own.

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use node_agent::{CpuManagerConfig, CpuManagerPolicy, CpuPolicyOptions, CpuSet, Reservation};

use crate::duration;

/// Upstream's flags of the same names, with upstream's defaults.
#[derive(Args, Clone)]
pub struct Cpus {
    /// CPU and memory that Pods do not get, for the processes of Kubernetes, for example cpu=500m,memory=256Mi.
    #[arg(long, default_value = "")]
    pub kube_reserved: Reservation,
    /// CPU and memory that Pods do not get, for the other processes of the machine, for example cpu=500m,memory=256Mi.
    #[arg(long, default_value = "")]
    pub system_reserved: Reservation,
    /// CPUs that Pods do not get, for example 0-1; this replaces the CPU of --kube-reserved and --system-reserved.
    #[arg(long, default_value = "")]
    pub reserved_cpus: CpuSet,
    /// Policy of the CPU manager: none, or static, under which a container of a Guaranteed Pod that requests whole CPUs has them alone.
    #[arg(long, default_value = "none")]
    pub cpu_manager_policy: CpuManagerPolicy,
    /// Options of the policy static, as name=value: full-pcpus-only, distribute-cpus-across-numa, strict-cpu-reservation.
    #[arg(long, default_value = "")]
    pub cpu_manager_policy_options: CpuPolicyOptions,
    /// Time between two checks of the CPUs of all containers.
    #[arg(long, default_value = "10s", value_parser = duration::parse)]
    pub cpu_manager_reconcile_period: Duration,
}

impl Cpus {
    /// Sets what the node keeps, and the CPU manager.
    pub fn apply(&self, config: &mut node_agent::Config) -> anyhow::Result<()> {
        if self.cpu_manager_reconcile_period.is_zero() {
            bail!("--cpu-manager-reconcile-period must be longer than 0");
        }
        let Reservation { cpu_milli, memory_bytes } = self.kube_reserved.with(self.system_reserved, &self.reserved_cpus);
        config.reserved = (cpu_milli, memory_bytes);
        config.cpu_manager = CpuManagerConfig {
            policy: self.cpu_manager_policy,
            options: self.cpu_manager_policy_options.clone(),
            reserved_cpus: self.reserved_cpus.clone(),
            reconcile_period: self.cpu_manager_reconcile_period,
        };
        Ok(())
    }
}
