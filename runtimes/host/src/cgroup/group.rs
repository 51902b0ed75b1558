//! One cgroup, the same path in every hierarchy: create, limit, join, read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cgroups_rs::CgroupPid;

use super::controllers;
use super::cpuset;
use super::hugetlb;
use super::layout::{Layout, Mode, V1_CONTROLLERS, V2_CONTROLLERS};
use super::limits;
use super::oom_kills;
use super::stats::StatsReader;
use runtimes_contract::RuntimeError;
use runtimes_contract::{Resources, Stats};

/// One cgroup; it need not exist.
#[derive(Clone, Debug)]
pub struct Group {
    pub(super) layout: Arc<Layout>,
    pub(super) path: String,
}

impl Group {
    pub(super) fn new(layout: Arc<Layout>, path: &str) -> Self {
        Self { layout, path: path.to_owned() }
    }

    /// Its path from the root.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Creates the group and its missing parents, and sets the given limits. Idempotent; on v2 the controllers are enabled at
    /// every level. An empty list of huge pages sets limits on v2 alone: elsewhere the group would have to be created in a further
    /// hierarchy for them. Containers that can map huge pages call [`Group::limit_huge_pages`].
    pub fn create(&self, resources: &Resources) -> Result<(), RuntimeError> {
        let group = self.layout.load(&self.path);
        group.create().map_err(failed(&self.path, "making"))?;
        if let (Mode::V2, Some(root)) = (self.layout.mode, self.layout.unified()) {
            controllers::enable(root, &self.path, &V2_CONTROLLERS)?;
        }
        limits::apply(&group, resources, false, self.limits_swap())?;
        let huge_pages = resources.huge_pages.as_ref().filter(|limits| self.layout.mode == Mode::V2 || !limits.is_empty());
        huge_pages.map_or(Ok(()), |limits| self.limit_huge_pages(limits))?;
        resources.cpuset_cpus.as_deref().map_or(Ok(()), |cpus| self.write_cpus(cpus))
    }

    /// Limits the bytes of huge pages by the bytes of a page, to none for sizes without a limit; nothing where no controller can. Creates
    /// the group in the controller's hierarchy.
    pub fn limit_huge_pages(&self, limits: &BTreeMap<u64, u64>) -> Result<(), RuntimeError> {
        hugetlb::limit(&self.layout, &self.path, limits)
    }

    /// Sets the CPUs on which the processes of a group may run, also those that run already. [`RuntimeError::NotFound`] when the group
    /// does not exist.
    pub fn set_cpus(&self, cpus: &str) -> Result<(), RuntimeError> {
        if self.exists() { self.write_cpus(cpus) } else { Err(self.missing()) }
    }

    fn write_cpus(&self, cpus: &str) -> Result<(), RuntimeError> {
        let is_new = cpuset::set(&self.layout, &self.path, cpus)?;
        let pids = if is_new { self.pids() } else { Vec::new() };
        pids.into_iter().try_for_each(|pid| cpuset::join(&self.layout, &self.path, pid))
    }

    pub(super) fn missing(&self) -> RuntimeError {
        RuntimeError::NotFound(format!("with cgroup {}", self.path))
    }

    /// Sets all limits of a group that exists. Limits that are not given are set to the kernel's defaults, except the limits of
    /// pids and huge pages, and the CPUs.
    pub fn set(&self, resources: &Resources) -> Result<(), RuntimeError> {
        limits::apply(&self.layout.load(&self.path), resources, true, self.limits_swap())
    }

    /// Puts a process (with all its threads) into the group.
    pub fn add(&self, pid: i32) -> Result<(), RuntimeError> {
        let process = CgroupPid::from(u64::from(pid.unsigned_abs()));
        self.layout.load(&self.path).add_task_by_tgid(process).map_err(failed(&self.path, &format!("putting process {pid} into")))?;
        hugetlb::join(&self.layout, &self.path, pid)?;
        cpuset::join(&self.layout, &self.path, pid)
    }

    /// The files of a group on v1 into which a process of one thread writes `0` to put itself into the group, as [`Group::add`] does but for
    /// huge pages in the unified hierarchy of a hybrid machine, which only runc's containers have. The kernel does that at once. Before it moves
    /// a process with all its threads, it waits until each CPU has been through its scheduler (for 11 ms on a machine that has nothing else
    /// to do). Empty on v2, where a thread cannot leave its process: see [`Group::open_unified`].
    pub fn own_thread_files(&self) -> Vec<PathBuf> {
        if self.layout.mode == Mode::V2 {
            return Vec::new();
        }
        let dir_of = |controller| Some(self.layout.v1_dir(controller)?.join(&self.path));
        let needed = V1_CONTROLLERS.into_iter().filter_map(dir_of);
        // A group is in these hierarchies only if it needs them.
        let optional = [hugetlb::CONTROLLER, cpuset::CONTROLLER].into_iter().filter_map(dir_of).filter(|dir| dir.is_dir());
        let dirs: BTreeSet<_> = needed.chain(optional).collect();
        dirs.into_iter().map(|dir| dir.join("tasks")).collect()
    }

    /// The group's directory on v2, in which processes can begin ([`spawn_in_cgroup`](crate::spawn::spawn_in_cgroup)); `None` on v1 and on
    /// hybrid machines. `None` also where the kernel ends the group as a whole when its memory runs out: it would end this process, too,
    /// whose memory a child has until it runs its program.
    pub fn open_unified(&self) -> Result<Option<File>, RuntimeError> {
        let ends_as_a_whole = |dir: &PathBuf| fs::read_to_string(dir.join("memory.oom.group")).is_ok_and(|text| text.trim() == "1");
        let open = |dir: PathBuf| File::open(&dir).map_err(RuntimeError::io(format!("opening {}", dir.display())));
        self.unified_dir().filter(|dir| !ends_as_a_whole(dir)).map(open).transpose()
    }

    /// Names of the groups directly below it, in any hierarchy.
    pub fn children(&self) -> BTreeSet<String> {
        let below = self.dirs().into_iter().flat_map(|dir| subdirs(&dir));
        below.filter_map(|dir| Some(dir.file_name()?.to_str()?.to_owned())).collect()
    }

    /// Whether it exists in any hierarchy.
    pub fn exists(&self) -> bool {
        self.dirs().iter().any(|dir| dir.is_dir())
    }

    /// The processes of the group and of all groups below it.
    pub fn pids(&self) -> Vec<i32> {
        let mut pids = Vec::new();
        for dir in self.dirs() {
            collect_pids(&dir, &mut pids);
        }
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// The use of the group; see [`StatsReader::read`].
    pub fn stats(&self) -> Result<Stats, RuntimeError> {
        StatsReader::default().read(self)
    }

    /// How many processes the memory limit has killed.
    pub fn oom_kills(&self) -> u64 {
        fs::read_to_string(self.oom_counter()).map_or(0, |text| oom_kills(&text))
    }

    /// The file that [`oom_kills`] reads, for shims.
    pub fn oom_counter(&self) -> PathBuf {
        match (self.layout.mode, self.layout.unified(), self.layout.v1_dir("memory")) {
            (Mode::V2, Some(root), _) => root.join(&self.path).join("memory.events"),
            (_, _, Some(memory)) => memory.join(&self.path).join("memory.oom_control"),
            // `Layout` exists only when there is one of the two.
            _ => PathBuf::new(),
        }
    }

    /// Its directory in every mounted hierarchy.
    pub(super) fn dirs(&self) -> Vec<PathBuf> {
        self.layout.roots().into_iter().map(|root| root.join(&self.path)).collect()
    }

    /// Its directory in the unified hierarchy, if the controllers are there.
    pub(super) fn unified_dir(&self) -> Option<PathBuf> {
        let root = self.layout.unified().filter(|_| self.layout.mode == Mode::V2)?;
        Some(root.join(&self.path))
    }

    fn limits_swap(&self) -> bool {
        self.layout.v1_dir("memory").is_some_and(|memory| memory.join("memory.memsw.limit_in_bytes").exists())
    }
}

/// For `map_err`: an error of cgroups-rs, with what was attempted on which group.
pub(super) fn failed(path: &str, doing: &str) -> impl FnOnce(cgroups_rs::fs::error::Error) -> RuntimeError {
    let doing = format!("{doing} cgroup {path}");
    |error| RuntimeError::io(doing)(io::Error::other(error))
}

fn collect_pids(dir: &Path, pids: &mut Vec<i32>) {
    // A group that is gone has no processes; one that appears now is found by the next check.
    let listed = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    pids.extend(listed.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|&pid| pid > 0));
    for below in subdirs(dir) {
        collect_pids(&below, pids);
    }
}

/// The groups directly below a group.
pub(super) fn subdirs(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}
