//! Properties of the machine, read from `/proc` and the file system.

mod huge_pages;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};
use node_volumes::Allocatable;
use runtimes_host::cgroup::Cgroups;
use runtimes_host::process::boot_id;

use crate::cpu_manager::CpuSet;
use crate::error::AgentError;
use crate::eviction::Thresholds;

/// Room for all of `/proc/meminfo`, in bytes.
const MEMINFO_SIZE: usize = 4_096;

/// Facts that do not change while the machine runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) cpus: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) disk_bytes: u64,
    /// The bytes of all huge pages of a size, by the bytes of one. As upstream, a number that changes later is read by the next agent.
    pub(crate) huge_pages: BTreeMap<u64, u64>,
    pub(crate) kernel: String,
    pub(crate) os_image: String,
    pub(crate) machine_id: String,
    pub(crate) system_uuid: String,
    pub(crate) boot_id: String,
    /// Processes and threads that the kernel allows.
    pub(crate) pids_max: i64,
    /// This process's own `oom_score_adj`: without `CAP_SYS_RESOURCE` the kernel does not let its children have a lower one.
    pub(crate) oom_score_adj: i32,
}

/// What the statuses of all Pods say of their node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    pub(crate) ip: IpAddr,
    /// Whether mounts are read-only with all that is mounted below when their container asks for it.
    pub(crate) recursive_read_only: bool,
}

/// A file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileSystem {
    pub(crate) bytes: u64,
    /// The free bytes for users other than root.
    pub(crate) free_bytes: u64,
    /// The free bytes for root.
    pub(crate) all_free_bytes: u64,
    pub(crate) inodes: u64,
    pub(crate) free_inodes: u64,
}

impl Machine {
    /// Reads the machine; a fact that cannot be read is empty. `data_dir` is on the disk that Pods use, `sys_dir` has the CPUs, `proc_dir`
    /// has the memory and the limits of processes, `huge_pages_dir` has the huge pages.
    pub(crate) fn read(data_dir: &Path, sys_dir: &Path, proc_dir: &Path, huge_pages_dir: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let os_release = text("/etc/os-release");
        let pretty = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        Self {
            cpus: count_cpus(&fs::read_to_string(sys_dir.join("cpu/online")).unwrap_or_default()),
            memory_bytes: Memory::read(proc_dir).total,
            disk_bytes: disk(data_dir).0,
            huge_pages: huge_pages::read(huge_pages_dir),
            kernel: text("/proc/sys/kernel/osrelease"),
            os_image: pretty.unwrap_or("Linux").trim_matches('"').to_owned(),
            machine_id: text("/etc/machine-id"),
            system_uuid: text("/sys/class/dmi/id/product_uuid").to_lowercase(),
            boot_id: boot_id().unwrap_or_default().to_owned(),
            pids_max: tasks_max(proc_dir).and_then(|max| i64::try_from(max).ok()).unwrap_or(0),
            oom_score_adj: text("/proc/self/oom_score_adj").parse().unwrap_or(0),
        }
    }

    /// What Pods may use after the reservation (thousandths of a CPU, bytes of memory) and the part that must stay free. The memory of huge
    /// pages is a resource of its own.
    pub(crate) fn allocatable(&self, reserved: (i64, i64), thresholds: &Thresholds) -> Allocatable {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let huge_pages = self.huge_pages.values().copied().fold(0, u64::saturating_add);
        Allocatable {
            cpu_milli: number(self.cpus).saturating_mul(1_000).saturating_sub(reserved.0).max(0),
            memory_bytes: number(self.memory_bytes).saturating_sub(reserved.1).saturating_sub(number(huge_pages)).max(0),
            ephemeral_storage_bytes: number(self.disk_bytes.saturating_sub(thresholds.disk_reserved(self.disk_bytes))),
        }
    }

    /// Whether the machine has what is reserved of it.
    pub(crate) fn check_reservation(&self, reserved: (i64, i64)) -> Result<(), AgentError> {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let cpu = ("cpu", reserved.0, number(self.cpus).saturating_mul(1_000));
        let memory = ("memory", reserved.1, number(self.memory_bytes));
        match [cpu, memory].into_iter().find(|(_, reserved, capacity)| reserved > capacity) {
            Some((resource, reserved, capacity)) => Err(AgentError::Reservation { resource, reserved, capacity }),
            None => Ok(()),
        }
    }

    /// Warns when the machine has huge pages that its cgroups do not limit. As upstream, the node starts.
    pub(crate) fn warn_of_unlimited_huge_pages(&self, cgroups: &Cgroups) {
        if self.huge_pages.values().any(|bytes| *bytes > 0) && !cgroups.limits_huge_pages() {
            tracing::warn!(
                "containers can use huge pages without limits: the cgroup controller hugetlb is missing, or it is in a unified hierarchy \
                 beside those of v1 that is not at /sys/fs/cgroup/unified"
            );
        }
    }
}

/// The share of all processes that one Pod may have by default, and the least number.
const POD_PIDS_SHARE: i64 = 8;
const POD_PIDS_MIN: i64 = 1_024;

impl Machine {
    /// The highest number of processes of one Pod, when the configuration does not set it.
    pub(crate) fn pod_pids_max(&self) -> i64 {
        (self.pids_max / POD_PIDS_SHARE).max(POD_PIDS_MIN)
    }

    /// The highest number of processes of all Pods together: the rest is for the node itself and for administrators.
    pub(crate) fn all_pods_pids_max(&self) -> i64 {
        (self.pids_max / 10 * 9).max(POD_PIDS_MIN)
    }
}

/// The memory of the machine in bytes; 0 when it cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    pub(crate) available: u64,
}

impl Memory {
    /// Reads `meminfo` of this directory, which is usually `/proc`.
    pub(crate) fn read(proc_dir: &Path) -> Self {
        // The kernel creates the text for each read, so one read with a large buffer returns one consistent state.
        let mut text = String::with_capacity(MEMINFO_SIZE);
        match fs::File::open(proc_dir.join("meminfo")).and_then(|mut file| file.read_to_string(&mut text)) {
            Ok(_) => Self::parse(&text),
            Err(_) => Self::default(),
        }
    }

    fn parse(meminfo: &str) -> Self {
        let bytes = |name: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
            kib.unwrap_or(0).saturating_mul(1_024)
        };
        Self { total: bytes("MemTotal"), available: bytes("MemAvailable") }
    }
}

/// The CPU time that the machine has used since it started, over all CPUs; `None` when it cannot be read.
pub(crate) fn cpu_time() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let ticks_per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|ticks| u64::try_from(ticks).ok())?;
    Some(Duration::from_nanos(busy_ticks(&stat)?.saturating_mul(NANOSECONDS.checked_div(ticks_per_second)?)))
}

const NANOSECONDS: u64 = 1_000_000_000;

/// The ticks in which a CPU was busy, in a text like that of `/proc/stat` (proc(5)). Idle time and waiting for a disk are not use.
/// The time of guests is within that of their users.
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let (user, nice, system) = (fields.first()?, fields.get(1)?, fields.get(2)?);
    let interrupts_and_stolen = fields.iter().skip(5).take(3);
    Some([user, nice, system].into_iter().chain(interrupts_and_stolen).sum())
}

/// Processes and threads of the machine: the second half of the fourth field.
pub(crate) fn tasks(proc_dir: &Path) -> Option<u64> {
    let text = fs::read_to_string(proc_dir.join("loadavg")).ok()?;
    text.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// The highest number of processes: the range of process ids, or the kernel's limit of threads if that is lower.
pub(crate) fn tasks_max(proc_dir: &Path) -> Option<u64> {
    let number = |path: &str| fs::read_to_string(proc_dir.join(path)).ok()?.trim().parse::<u64>().ok();
    ["sys/kernel/pid_max", "sys/kernel/threads-max"].into_iter().filter_map(number).min()
}

/// Size and free space of the file system under a path.
pub(crate) fn disk(path: &Path) -> (u64, u64) {
    file_system(path).map_or((0, 0), |fs| (fs.bytes, fs.free_bytes))
}

/// The file system of a path. The directory may not exist yet; then one of its parents does.
pub(crate) fn file_system(path: &Path) -> Option<FileSystem> {
    let found = path.ancestors().find_map(|at| nix::sys::statvfs::statvfs(at).ok())?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.fragment_size());
    Some(FileSystem {
        bytes: bytes(found.blocks()),
        free_bytes: bytes(found.blocks_available()),
        all_free_bytes: bytes(found.blocks_free()),
        inodes: found.files(),
        free_inodes: found.files_available(),
    })
}

/// The number of CPUs in a list such as `0-3,8`; a machine has at least one.
fn count_cpus(list: &str) -> u64 {
    let cpus = list.trim().parse::<CpuSet>().map_or(0, |cpus| cpus.len());
    u64::try_from(cpus).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_counted() {
        for (list, wanted) in [("0", 1), ("0-3\n", 4), ("0-1,4-7", 6), ("", 1), ("?", 1)] {
            assert_eq!(count_cpus(list), wanted, "{list}");
        }
    }

    #[test]
    fn memory_is_read_by_its_names() {
        let text = "MemTotal:       24684092 kB\nMemFree:        1 kB\nMemAvailable:   23954872 kB\n";
        assert_eq!(Memory::parse(text), Memory { total: 24_684_092 << 10, available: 23_954_872 << 10 });
        assert_eq!(Memory::parse("MemTotalOfNobody: 7 kB\n"), Memory::default());
    }

    #[test]
    fn only_busy_ticks_count() {
        let stat = "cpu  100 20 3 5000 600 4 5 6 70 8\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(busy_ticks(stat), Some(100 + 20 + 3 + 4 + 5 + 6));
        assert_eq!(busy_ticks("cpu  1 2\n"), None);
        assert_eq!(busy_ticks("cpu0 1 2 3\n"), None);
        let first = cpu_time().expect("a time");
        assert!(first > Duration::ZERO && cpu_time() >= Some(first));
    }

    #[test]
    fn huge_pages_are_no_other_memory() {
        let machine = |huge_pages| Machine { memory_bytes: 100, huge_pages, ..Machine::default() };
        let memory = |huge_pages: &[(u64, u64)]| machine(huge_pages.iter().copied().collect()).allocatable((0, 10), &Thresholds::default());
        assert_eq!(memory(&[]).memory_bytes, 90);
        assert_eq!(memory(&[(2, 20), (4, 40), (8, 0)]).memory_bytes, 30);
        assert_eq!(memory(&[(2, 100)]).memory_bytes, 0);
    }

    #[test]
    fn this_machine_is_one() {
        let absent = Path::new("/nowhere/at/all");
        let machine = Machine::read(absent, Path::new("/sys/devices/system"), Path::new("/proc"), absent);
        let milli = i64::try_from(machine.cpus).expect("few") * 1_000;
        assert!(machine.check_reservation((milli, 1)).is_ok() && machine.check_reservation((0, i64::MAX)).is_err());
        let error = machine.check_reservation((milli + 1, 0)).expect_err("too much").to_string();
        assert!(error.starts_with("invalid Node Allocatable configuration. Resource \"cpu\" has a reservation of "), "{error}");
        assert!(machine.pod_pids_max() >= 1_024 && machine.all_pods_pids_max() < machine.pids_max);
        assert!(machine.cpus > 0 && machine.memory_bytes > 0 && machine.disk_bytes > 0 && !machine.kernel.is_empty());
    }
}
