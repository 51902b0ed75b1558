//! Pressure stall information (PSI): how long tasks waited for a CPU, for memory or for a disk, in a group or on the whole machine. Groups
//! of version 1 have none, and neither have kernels on which it is off.

use std::fs;

use super::group::Group;
use super::stats::StatsReader;

/// Time in which tasks waited for a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stall {
    /// Since the group or the machine started, in µs.
    pub total_us: u64,
    /// The share of the last 10 seconds, in per cent.
    pub avg10: f64,
    /// The share of the last 60 seconds, in per cent.
    pub avg60: f64,
    /// The share of the last 300 seconds, in per cent.
    pub avg300: f64,
}

/// The pressure on one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// The time in which at least one task waited.
    pub some: Stall,
    /// The time in which no task could run. Zero for the CPUs of a machine, and on Linux older than 5.13 for those of a group.
    pub full: Stall,
}

/// The pressure on each resource; `None` where the kernel does not measure it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressures {
    /// On CPUs.
    pub cpu: Option<Pressure>,
    /// On memory.
    pub memory: Option<Pressure>,
    /// On disks.
    pub io: Option<Pressure>,
}

impl Pressures {
    /// The pressure on the machine. Blocks.
    pub fn of_machine() -> Self {
        Self::read(|resource| fs::read_to_string(format!("/proc/pressure/{resource}")).ok())
    }

    fn read(mut text_of: impl FnMut(&str) -> Option<String>) -> Self {
        let mut pressure = |resource: &str| parse(&text_of(resource)?);
        Self { cpu: pressure("cpu"), memory: pressure("memory"), io: pressure("io") }
    }
}

impl StatsReader {
    /// The pressure in a group, including groups below it. Blocks.
    pub fn pressures(&mut self, group: &Group) -> Pressures {
        let Some(dir) = group.unified_dir() else { return Pressures::default() };
        Pressures::read(|resource| self.text(&dir, &format!("{resource}.pressure")))
    }
}

/// The lines `some` and `full` of a file. The second one is missing for CPUs on old kernels.
fn parse(text: &str) -> Option<Pressure> {
    let stall = |kind: &str| parse_stall(text.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))?);
    Some(Pressure { some: stall("some")?, full: stall("full").unwrap_or_default() })
}

/// For example `avg10=0.12 avg60=0.05 avg300=0.00 total=4711`.
fn parse_stall(line: &str) -> Option<Stall> {
    let field = |name: &str| line.split_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    let share = |name: &str| field(name)?.parse::<f64>().ok();
    Some(Stall { total_us: field("total")?.parse().ok()?, avg10: share("avg10")?, avg60: share("avg60")?, avg300: share("avg300")? })
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::super::layout::Layout;
    use super::super::tests::mount;
    use super::*;

    const MEMORY: &str = "some avg10=1.50 avg60=0.25 avg300=0.01 total=4711\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=42\n";

    #[test]
    fn both_lines_are_read_by_their_names() {
        let some = Stall { total_us: 4_711, avg10: 1.5, avg60: 0.25, avg300: 0.01 };
        let full = Stall { total_us: 42, avg10: 0.5, avg60: 0.0, avg300: 0.0 };
        assert_eq!(parse(MEMORY), Some(Pressure { some, full }));
        let old = "some avg10=1.50 avg60=0.25 avg300=0.01 total=4711\n";
        assert_eq!(parse(old), Some(Pressure { some, full: Stall::default() }), "CPUs before Linux 5.13");
        let incomplete = "some avg10=1.50 avg60=0.25 avg300=0.01\n";
        for broken in ["", "some\n", incomplete, "some avg10=x avg60=0 avg300=0 total=1\n", "somewhat total=1\n"] {
            assert_eq!(parse(broken), None, "{broken}");
        }
    }

    #[test]
    fn a_group_has_the_pressure_that_its_files_have() {
        let root = tempfile::tempdir().expect("a directory");
        let group = Group::new(Arc::new(Layout::unified_at(root.path())), "burstable/pod/container");
        let dir = root.path().join(group.path());
        std::fs::create_dir_all(&dir).expect("a directory");
        assert_eq!(StatsReader::default().pressures(&group), Pressures::default(), "PSI is off");
        std::fs::write(dir.join("memory.pressure"), MEMORY).expect("a file");
        let found = StatsReader::default().pressures(&group);
        assert_eq!((found.cpu, found.memory.map(|memory| memory.some.total_us), found.io), (None, Some(4_711), None));
    }

    #[test]
    fn hierarchies_of_version_1_have_no_pressure() {
        let line = mount(Path::new("/sys/fs/cgroup"), "cgroup", "memory,cpu,cpuacct,pids");
        let layout = Layout::parse(line.as_bytes(), &|_: &Path| String::new()).expect("a layout");
        assert_eq!(StatsReader::default().pressures(&Group::new(Arc::new(layout), "pod")), Pressures::default());
    }
}
