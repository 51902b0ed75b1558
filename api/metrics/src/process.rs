//! The CPU time and the memory of this process, from `/proc/self/stat` (proc(5)), under the names of Prometheus' clients.

use std::fs::File;

use nix::unistd::{SysconfVar, sysconf};
use procfs_core::process::Stat;
use procfs_core::{FromRead as _, ProcError};

use crate::families::{Families, number};

pub(crate) fn add(families: &mut Families) {
    let stat = match read() {
        Ok(stat) => stat,
        Err(error) => return tracing::warn!(%error, "metrics have no figures of the process"),
    };
    let [ticks_per_second, page_bytes] =
        [SysconfVar::CLK_TCK, SysconfVar::PAGE_SIZE].map(|variable| sysconf(variable).ok().flatten().unwrap_or(1));
    let seconds = number(stat.utime + stat.stime) / ticks_per_second as f64;
    let resident = number(stat.rss) * page_bytes as f64;
    families.counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", [([], seconds)]);
    families.gauge("process_resident_memory_bytes", "Resident memory size in bytes.", [([], resident)]);
}

fn read() -> Result<Stat, ProcError> {
    Stat::from_read(File::open("/proc/self/stat")?)
}
