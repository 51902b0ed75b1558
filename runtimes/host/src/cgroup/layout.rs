//! Which cgroup hierarchies are mounted, and where the controllers for limits are.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cgroups_rs::fs::{Cgroup, Hierarchy, Subsystem};

use runtimes_contract::RuntimeError;

/// The controllers that limits and statistics need.
pub const V1_CONTROLLERS: [&str; 4] = ["memory", "cpu", "cpuacct", "pids"];
/// The same in the unified hierarchy, where `cpu` accounts too.
pub const V2_CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

/// The place of a machine's controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each in a v1 hierarchy.
    V1,
    /// In the unified hierarchy.
    V2,
    /// In v1 hierarchies, with a unified hierarchy beside them that has none of ours.
    Hybrid,
}

/// The mounted hierarchies.
#[derive(Clone, Debug)]
pub struct Layout {
    pub mode: Mode,
    /// v1 mounts: their controllers (or `name=…`) and their directory.
    v1: Vec<(Vec<String>, PathBuf)>,
    unified: Option<PathBuf>,
}

impl Layout {
    /// From the content of mountinfo, which is not UTF-8 where a mount point is not; `controllers` reads a unified root's
    /// `cgroup.controllers`.
    pub fn parse(mountinfo: &[u8], controllers: &dyn Fn(&Path) -> String) -> Result<Self, RuntimeError> {
        let mut v1: Vec<(Vec<String>, PathBuf)> = Vec::new();
        let mut unified: Option<PathBuf> = None;
        for (kind, dir, options) in mountinfo.split(|byte| *byte == b'\n').filter_map(parse_line) {
            match kind {
                // A second mount of one hierarchy shows the same groups.
                "cgroup" if v1.iter().all(|(present, _)| *present != options) => v1.push((options, dir)),
                "cgroup2" if unified.is_none() => unified = Some(dir),
                _ => {}
            }
        }
        let in_v1 = |name: &&str| v1.iter().any(|(names, _)| names.iter().any(|bound| bound == name));
        let unified_has = unified.as_deref().map(controllers).unwrap_or_default();
        let in_v2 = |name: &&str| unified_has.split_whitespace().any(|bound| bound == *name);
        let mode = if V2_CONTROLLERS.iter().all(in_v2) {
            Mode::V2
        } else if V1_CONTROLLERS.iter().all(in_v1) {
            if unified.is_some() { Mode::Hybrid } else { Mode::V1 }
        } else {
            let lacking: Vec<_> = V2_CONTROLLERS.into_iter().filter(|name| !in_v1(name) && !in_v2(name)).collect();
            let lacking = if lacking.is_empty() { V2_CONTROLLERS.join(", ") } else { lacking.join(", ") };
            return Err(RuntimeError::Missing(format!(
                "cgroup controllers not available together: {lacking}; mount cgroup2 at /sys/fs/cgroup, and check the kernel command line for cgroup_disable"
            )));
        };
        Ok(Self { mode, v1, unified })
    }

    pub fn unified_at(root: &Path) -> Self {
        Self { mode: Mode::V2, v1: Vec::new(), unified: Some(root.to_owned()) }
    }

    /// The directory of the v1 hierarchy that has a controller.
    pub fn v1_dir(&self, controller: &str) -> Option<&Path> {
        self.v1.iter().find(|(names, _)| names.iter().any(|name| name == controller)).map(|(_, dir)| dir.as_path())
    }

    pub fn unified(&self) -> Option<&Path> {
        self.unified.as_deref()
    }

    /// Every mounted hierarchy.
    pub fn roots(&self) -> Vec<PathBuf> {
        self.v1.iter().map(|(_, dir)| dir.clone()).chain(self.unified.clone()).collect()
    }

    /// cgroups-rs' handle on the group of that path, with the controllers that we use.
    pub fn load(&self, path: &str) -> Cgroup {
        match (self.mode, &self.unified) {
            (Mode::V2, Some(root)) => Cgroup::load(Box::new(UnifiedAt(root.clone())), path),
            _ => {
                let controllers = V1_CONTROLLERS.iter().map(|&name| name.to_owned()).collect();
                Cgroup::load_with_specified_controllers(Box::new(V1At(self.v1.clone())), path, controllers)
            }
        }
    }
}

/// A unified hierarchy at any path; cgroups-rs' own type knows only `/sys/fs/cgroup`.
#[derive(Clone, Debug)]
struct UnifiedAt(PathBuf);

impl Hierarchy for UnifiedAt {
    fn subsystems(&self) -> Vec<Subsystem> {
        use cgroups_rs::fs::{cpu::CpuController, freezer::FreezerController, memory::MemController, pid::PidController};
        let controllers = std::fs::read_to_string(self.0.join("cgroup.controllers")).unwrap_or_default();
        // The freezer is not a controller, but it always exists, and processes are attached through it.
        let mut subsystems = vec![Subsystem::Freezer(FreezerController::new(self.0.clone(), PathBuf::new(), true))];
        for name in controllers.split_whitespace() {
            match name {
                "cpu" => subsystems.push(Subsystem::Cpu(CpuController::new(self.0.clone(), PathBuf::new(), true))),
                "memory" => subsystems.push(Subsystem::Mem(MemController::new(self.0.clone(), PathBuf::new(), true))),
                "pids" => subsystems.push(Subsystem::Pid(PidController::new(self.0.clone(), PathBuf::new(), true))),
                _ => {}
            }
        }
        subsystems
    }

    fn root(&self) -> PathBuf {
        self.0.clone()
    }

    fn root_control_group(&self) -> Cgroup {
        Cgroup::load(Box::new(self.clone()), "")
    }

    fn parent_control_group(&self, path: &str) -> Cgroup {
        let parent = Path::new(path).parent().unwrap_or(Path::new(""));
        Cgroup::load(Box::new(self.clone()), parent)
    }

    fn v2(&self) -> bool {
        true
    }
}

/// The v1 hierarchies of a [`Layout`]; cgroups-rs' own reads mountinfo only up to the first mount point that is not UTF-8.
#[derive(Clone, Debug)]
struct V1At(Vec<(Vec<String>, PathBuf)>);

impl V1At {
    fn dir(&self, controller: &str) -> Option<PathBuf> {
        self.0.iter().find(|(names, _)| names.iter().any(|name| name == controller)).map(|(_, dir)| dir.clone())
    }
}

impl Hierarchy for V1At {
    fn subsystems(&self) -> Vec<Subsystem> {
        use cgroups_rs::fs::{cpu::CpuController, cpuacct::CpuAcctController, memory::MemController, pid::PidController};
        let base = PathBuf::new;
        let all = [
            self.dir("memory").map(|dir| Subsystem::Mem(MemController::new(dir, base(), false))),
            self.dir("pids").map(|dir| Subsystem::Pid(PidController::new(dir, base(), false))),
            self.dir("cpuacct").map(|dir| Subsystem::CpuAcct(CpuAcctController::new(dir, base()))),
            self.dir("cpu").map(|dir| Subsystem::Cpu(CpuController::new(dir, base(), false))),
        ];
        all.into_iter().flatten().collect()
    }

    fn root(&self) -> PathBuf {
        self.0.iter().find_map(|(_, dir)| dir.parent().map(Path::to_owned)).unwrap_or_default()
    }

    fn root_control_group(&self) -> Cgroup {
        Cgroup::load(Box::new(self.clone()), "")
    }

    fn parent_control_group(&self, path: &str) -> Cgroup {
        let parent = Path::new(path).parent().unwrap_or(Path::new(""));
        Cgroup::load(Box::new(self.clone()), parent)
    }

    fn v2(&self) -> bool {
        false
    }
}

/// `(file system type, mount point, super options)` of a mountinfo line. The kernel writes paths byte by byte; everything
/// that is read as text here is ASCII in the line of a cgroup hierarchy.
fn parse_line(line: &[u8]) -> Option<(&str, PathBuf, Vec<String>)> {
    const SEPARATOR: &[u8] = b" - ";
    let at = line.windows(SEPARATOR.len()).position(|window| window == SEPARATOR)?;
    let (mount, file_system) = (line.get(..at)?, line.get(at + SEPARATOR.len()..)?);
    let dir = mount.split(|byte| *byte == b' ').nth(4)?;
    let mut fields = str::from_utf8(file_system).ok()?.split(' ');
    let (kind, options) = (fields.next()?, fields.nth(1)?);
    let bound = options.split(',').filter(|option| !matches!(*option, "rw" | "ro")).map(str::to_owned).collect();
    Some((kind, PathBuf::from(OsStr::from_bytes(dir)), bound))
}
