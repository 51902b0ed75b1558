//! Cgroups on v1, v2 and hybrid machines, over cgroups-rs: shared by the agent (Pod and QoS groups)
//! and by runtimes (container groups).
//!
//! A [`Group`] is a path such as `skiff/3f2a/burstable/pod1`, the same in every hierarchy. The place of the controllers decides
//! which files are written: v1 mounts when the controllers are bound there (also on hybrid machines), else the unified
//! hierarchy. Huge pages are the exception on hybrid machines, whose unified hierarchy may have their controller. Removal reads every
//! hierarchy that is mounted, because runc creates its groups in all of them.
//!
//! All calls block (attaching a process can take ten milliseconds); make them from a blocking thread.

mod controllers;
mod cpuset;
mod group;
mod hugetlb;
mod io;
mod layout;
mod limits;
mod moves;
mod pressure;
mod remove;
mod stats;
mod swap;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use group::Group;
pub use io::DeviceIo;
pub use layout::Mode;
pub use limits::cpu_weight;
pub use pressure::{Pressure, Pressures, Stall};
pub use stats::StatsReader;
pub use swap::Swap;

use layout::Layout;
use runtimes_contract::RuntimeError;

/// The machine's cgroup hierarchies.
#[derive(Clone, Debug)]
pub struct Cgroups {
    layout: Arc<Layout>,
}

impl Cgroups {
    /// Reads the mounts. [`RuntimeError::Missing`] when memory, cpu or pids is not bound anywhere.
    pub fn detect() -> Result<Self, RuntimeError> {
        let mountinfo = std::fs::read("/proc/self/mountinfo").map_err(RuntimeError::io("reading /proc/self/mountinfo"))?;
        let layout = Layout::parse(&mountinfo, &|root| std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default())?;
        Ok(Self { layout: Arc::new(layout) })
    }

    /// Uses one cgroup2 mount alone, whichever controllers it has.
    pub fn unified_at(root: &Path) -> Self {
        Self { layout: Arc::new(Layout::unified_at(root)) }
    }

    /// The place of the controllers.
    pub fn mode(&self) -> Mode {
        self.layout.mode
    }

    /// Whether a limit on memory plus swap can be set (v1 needs swap accounting).
    pub fn limits_swap(&self) -> bool {
        match self.mode() {
            Mode::V2 => true,
            Mode::V1 | Mode::Hybrid => {
                self.layout.v1_dir("memory").is_some_and(|memory| memory.join("memory.memsw.limit_in_bytes").exists())
            }
        }
    }

    /// Whether groups can have CPUs of their own.
    pub fn has_cpusets(&self) -> bool {
        cpuset::is_available(&self.layout)
    }

    /// Whether groups can limit the huge pages of all containers. Not so without the controller, and on a hybrid machine whose unified
    /// hierarchy has it and is not at `/sys/fs/cgroup/unified`, where runc joins it.
    pub fn limits_huge_pages(&self) -> bool {
        hugetlb::is_available(&self.layout)
    }

    /// A group by its path from the root, for example `skiff/3f2a/burstable/pod1`. It need not exist. Paths that are empty,
    /// absolute, or contain `..` are rejected.
    pub fn group(&self, path: &str) -> Result<Group, RuntimeError> {
        let plain = !path.is_empty() && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if plain {
            Ok(Group::new(self.layout.clone(), path))
        } else {
            Err(RuntimeError::Unsupported(format!("{path:?} is not the path of a cgroup")))
        }
    }

    /// Has the kernel move processes at once for the next ms, which it otherwise does after a wait. Blocks for the wait: call it beside
    /// what comes before a move, for example beside the start of runc.
    ///
    /// # Errors
    /// When this process sees its own groups nowhere. Then moves take as long as ever.
    pub fn prepare_moves(&self) -> std::io::Result<()> {
        moves::prepare(&self.layout)
    }

    /// Every mounted hierarchy's directory.
    pub fn roots(&self) -> Vec<PathBuf> {
        self.layout.roots()
    }
}

/// The number after `oom_kill ` in cgroup v1's `memory.oom_control` or v2's `memory.events`.
pub fn oom_kills(text: &str) -> u64 {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")).and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
