//! Limits in the terms of each cgroup version. Pure except [`apply`].

use cgroups_rs::fs::cpu::CpuController;
use cgroups_rs::fs::memory::MemController;
use cgroups_rs::fs::pid::PidController;
use cgroups_rs::fs::{Cgroup, Controller as _, MaxValue};

use super::group::failed;
use runtimes_contract::Resources;
use runtimes_contract::RuntimeError;

/// The kernel's default period of CPU quotas.
const PERIOD_DEFAULT_US: u64 = 100_000;
/// The kernel's default cgroup v1 CPU shares.
const SHARES_DEFAULT: u64 = 1024;

/// cgroup v2's `cpu.weight` (1 to 10,000) for v1 shares (2 to 262,144): the curve through (2, 1),
/// (1024, 100) and (262144, 10000) that runc and crun use since 2025, so that the default shares are
/// the default weight.
pub fn cpu_weight(shares: u64) -> u64 {
    match shares {
        0..=2 => 1,
        262_144.. => 10_000,
        _ => {
            // In this range a u64 is exact as a float, and the result is between 1 and 10,000.
            #[expect(clippy::cast_precision_loss, reason = "shares are below 2^18")]
            let log = (shares as f64).log2();
            let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 10,000")]
            let weight = 10_f64.powf(exponent).ceil() as u64;
            weight.clamp(1, 10_000)
        }
    }
}

/// A byte limit as cgroups-rs takes it; -1 is none.
pub fn memory_limit(bytes: Option<u64>) -> i64 {
    bytes.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// A pid limit; zero and below is none.
pub fn pids_limit(max: Option<i64>) -> MaxValue {
    match max {
        Some(max) if max > 0 => MaxValue::Value(max),
        _ => MaxValue::Max,
    }
}

/// Writes limits. A limit of `None` is not written, or with `reset` set to the kernel's default. The limit of pids is never
/// reset: a Pod's resize does not change it.
pub fn apply(group: &Cgroup, resources: &Resources, reset: bool, limits_swap: bool) -> Result<(), RuntimeError> {
    let path = group.path();
    if let Some(memory) = group.controller_of::<MemController>()
        && (reset || resources.memory_limit_bytes.is_some())
    {
        apply_memory(memory, memory_limit(resources.memory_limit_bytes), group.v2(), limits_swap)
            .map_err(failed(path, "limiting the memory of"))?;
    }
    if let Some(cpu) = group.controller_of::<CpuController>() {
        apply_cpu(cpu, resources, reset, group.v2()).map_err(failed(path, "limiting the CPU of"))?;
    }
    if let Some(pids) = group.controller_of::<PidController>()
        && resources.pids_max.is_some()
    {
        pids.set_pid_max(pids_limit(resources.pids_max)).map_err(failed(path, "limiting the pids of"))?;
    }
    Ok(())
}

/// Memory, without additional swap. On v1 memory may never exceed memory plus swap, so the order of the writes depends on
/// whether the limit grows.
fn apply_memory(memory: &MemController, limit: i64, v2: bool, limits_swap: bool) -> cgroups_rs::fs::error::Result<()> {
    if v2 {
        memory.set_limit(limit)?;
        // Kernels without swap have no file for it. v2 counts swap apart from memory.
        let counts_swap = memory.path().join("memory.swap.max").exists();
        return if counts_swap { memory.set_memswap_limit(if limit < 0 { -1 } else { 0 }) } else { Ok(()) };
    }
    if !limits_swap {
        return memory.set_limit(limit);
    }
    let present = memory.memswap().limit_in_bytes;
    if limit < 0 || limit > present {
        memory.set_memswap_limit(limit)?;
        memory.set_limit(limit)
    } else {
        memory.set_limit(limit)?;
        memory.set_memswap_limit(limit)
    }
}

fn apply_cpu(cpu: &CpuController, resources: &Resources, reset: bool, v2: bool) -> cgroups_rs::fs::error::Result<()> {
    if let Some(shares) = resources.cpu_shares.or(reset.then_some(SHARES_DEFAULT)) {
        // On v2 cgroups-rs writes this number to `cpu.weight` as it is.
        cpu.set_shares(if v2 { cpu_weight(shares) } else { shares })?;
    }
    let quota = resources.cpu_quota_us.or(reset.then_some(-1));
    if v2 {
        return match quota {
            Some(quota) => cpu.set_cfs_quota_and_period(Some(quota), Some(resources.cpu_period_us.unwrap_or(PERIOD_DEFAULT_US))),
            None => Ok(()),
        };
    }
    // The period first: the kernel checks a quota as a share of its period against the parent's share.
    if let Some(period) = resources.cpu_period_us.or(reset.then_some(PERIOD_DEFAULT_US)) {
        cpu.set_cfs_period(period)?;
    }
    quota.map_or(Ok(()), |quota| cpu.set_cfs_quota(if quota > 0 { quota } else { -1 }))
}
