//! What the machine and this process use now, from procfs.

use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use nix::unistd::{SysconfVar, sysconf};
use procfs_core::process::Stat;
use procfs_core::{FromRead as _, Meminfo, Uptime, VmStat};
use runtimes_contract::Stats;
use runtimes_host::cgroup::Pressures;

use crate::machine;

/// One reading. What cannot be read is zero or `None`.
#[derive(Debug, Default)]
pub(crate) struct MachineUsage {
    /// When the kernel started.
    pub(crate) start: Option<Timestamp>,
    /// The machine. Its working set is what is not available.
    pub(crate) stats: Stats,
    pub(crate) memory_bytes: u64,
    pub(crate) available_bytes: u64,
    pub(crate) swap_bytes: u64,
    pub(crate) swap_free_bytes: u64,
    pub(crate) pressures: Pressures,
    /// Processes and threads, and the highest number of them.
    pub(crate) tasks: Option<(u64, u64)>,
    /// This process.
    pub(crate) own: Stats,
    pub(crate) own_start: Option<Timestamp>,
}

impl MachineUsage {
    /// Reads the machine, its memory and its processes from a directory like `/proc`. Blocks.
    pub(crate) fn read(now: Timestamp, proc_dir: &Path) -> Self {
        let tasks = machine::tasks(proc_dir).zip(machine::tasks_max(proc_dir));
        let mut usage = Self { tasks, pressures: Pressures::of_machine(), ..Self::default() };
        let uptime = Uptime::from_file("/proc/uptime").ok().and_then(|uptime| SignedDuration::try_from_secs_f64(uptime.uptime).ok());
        usage.start = uptime.and_then(|uptime| now.checked_sub(uptime).ok());
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        usage.stats.cpu_ns = machine::cpu_time().map_or(0, nanoseconds);
        if let Ok(memory) = Meminfo::from_file(proc_dir.join("meminfo")) {
            usage.memory_bytes = memory.mem_total;
            usage.available_bytes = memory.mem_available.unwrap_or(memory.mem_free);
            (usage.swap_bytes, usage.swap_free_bytes) = (memory.swap_total, memory.swap_free);
            usage.stats.memory_bytes = memory.mem_total.saturating_sub(memory.mem_free);
            usage.stats.working_set_bytes = memory.mem_total.saturating_sub(usage.available_bytes);
            usage.stats.rss_bytes = memory.anon_pages.unwrap_or(0);
        }
        if let Ok(VmStat(counters)) = VmStat::from_file("/proc/vmstat") {
            let counter = |name: &str| counters.get(name).and_then(|count| u64::try_from(*count).ok()).unwrap_or(0);
            (usage.stats.page_faults, usage.stats.major_page_faults) = (counter("pgfault"), counter("pgmajfault"));
        }
        if let Ok(stat) = Stat::from_file("/proc/self/stat") {
            usage.add_own(&stat);
        }
        usage
    }

    fn add_own(&mut self, stat: &Stat) {
        let [ticks, page] = [SysconfVar::CLK_TCK, SysconfVar::PAGE_SIZE]
            .map(|name| sysconf(name).ok().flatten().and_then(|value| u64::try_from(value).ok()));
        let tick_ns = 1_000_000_000_u64.checked_div(ticks.unwrap_or(0)).unwrap_or(0);
        let resident = stat.rss.saturating_mul(page.unwrap_or(0));
        self.own = Stats {
            cpu_ns: stat.utime.saturating_add(stat.stime).saturating_mul(tick_ns),
            memory_bytes: resident,
            working_set_bytes: resident,
            rss_bytes: resident,
            page_faults: stat.minflt.saturating_add(stat.majflt),
            major_page_faults: stat.majflt,
            pids: u64::try_from(stat.num_threads).unwrap_or(0),
        };
        let since_boot = Duration::from_nanos(stat.starttime.saturating_mul(tick_ns));
        self.own_start = self.start.and_then(|start| start.checked_add(since_boot).ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_and_this_process_use_something() {
        let now = api_clock::now();
        let usage = MachineUsage::read(now, Path::new("/proc"));
        for stats in [&usage.stats, &usage.own] {
            assert!(stats.working_set_bytes > 0 && stats.rss_bytes > 0 && stats.page_faults > 0, "{usage:?}");
        }
        assert!(usage.memory_bytes > usage.stats.working_set_bytes && usage.stats.cpu_ns > 0, "{usage:?}");
        assert!(usage.tasks.is_some_and(|(now, max)| now > 0 && now < max), "{usage:?}");
        // The kernel counts both times in ticks.
        let soon = now.checked_add(SignedDuration::from_secs(1)).ok();
        assert!(usage.start < usage.own_start && usage.own_start < soon, "{usage:?}");
    }
}
