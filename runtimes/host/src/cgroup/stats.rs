//! The use of a group, from the four files that have it. A node reads it of all its containers every few seconds; cgroups-rs reads more
//! than twenty files of a group for the same numbers.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode as Permissions;
use runtimes_contract::{RuntimeError, Stats};

use super::group::Group;
use super::layout::{Layout, Mode};

/// The longest of the files, `memory.stat`, has less than half of this. The kernel does not say how long they are.
const FILE_LEN: usize = 64 << 10;

/// What a mode calls the bytes in use, the file with the CPU time and its controller, and of `memory.stat` the inactive bytes of files, the
/// bytes of no file, the page faults, and those of them that read from a disk.
struct Names {
    usage: &'static str,
    cpu: [&'static str; 2],
    counters: [&'static str; 4],
}

const V1: Names = Names {
    usage: "memory.usage_in_bytes",
    cpu: ["cpuacct", "cpuacct.usage"],
    counters: ["total_inactive_file", "total_rss", "total_pgfault", "total_pgmajfault"],
};
const V2: Names = Names { usage: "memory.current", cpu: ["cpu", "cpu.stat"], counters: ["inactive_file", "anon", "pgfault", "pgmajfault"] };

/// Reads the use of one group after another. The directories above Pods stay open meanwhile: the kernel checks each directory of a path
/// in a file system of cgroups anew, which is more than half of what such a file costs.
#[derive(Debug, Default)]
pub struct StatsReader {
    /// By path.
    dirs: Vec<(PathBuf, File)>,
}

impl StatsReader {
    /// The use of a group, including groups below it.
    ///
    /// # Errors
    /// [`RuntimeError::NotFound`] when the group does not exist.
    pub fn read(&mut self, group: &Group) -> Result<Stats, RuntimeError> {
        match read(&group.layout, &group.path, |dir, file| self.text(dir, file)) {
            Some(stats) => Ok(stats),
            None if group.exists() => Ok(Stats::default()),
            None => Err(group.missing()),
        }
    }

    /// A file of a group whose directory is `dir`.
    pub(super) fn text(&mut self, dir: &Path, file: &str) -> Option<String> {
        // A Pod's group and a container's.
        let above = dir.ancestors().nth(2)?;
        let path = dir.strip_prefix(above).ok()?.join(file);
        let index = match self.dirs.iter().position(|(open, _)| open == above) {
            Some(index) => index,
            None => {
                self.dirs.push((above.to_owned(), File::open(above).ok()?));
                self.dirs.len() - 1
            }
        };
        let (_, above) = self.dirs.get(index)?;
        let file = openat(above, &path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Permissions::empty()).ok()?;
        let mut text = String::with_capacity(FILE_LEN / 8);
        File::from(file).take(FILE_LEN as u64).read_to_string(&mut text).ok().map(|_| text)
    }
}

/// The use of a group, including groups below it, from the texts of files in its directories. `None` when there is none of the files;
/// without one of them its numbers are 0.
fn read(layout: &Layout, path: &str, mut text_of: impl FnMut(&Path, &str) -> Option<String>) -> Option<Stats> {
    let is_v2 = layout.mode == Mode::V2;
    let names = if is_v2 { V2 } else { V1 };
    let mut text = |controller: &str, file: &str| {
        let root = if is_v2 { layout.unified() } else { layout.v1_dir(controller) };
        text_of(&root?.join(path), file)
    };
    let [cpu_controller, cpu_file] = names.cpu;
    let files = [text("memory", names.usage), text("memory", "memory.stat"), text(cpu_controller, cpu_file), text("pids", "pids.current")];
    if files.iter().all(Option::is_none) {
        return None;
    }
    let [usage, counters, cpu, pids] = files.map(Option::unwrap_or_default);
    let number = |text: &str| text.trim().parse().unwrap_or(0);
    let [inactive_bytes, rss_bytes, page_faults, major_page_faults] = counters_of(&counters, names.counters);
    let memory_bytes: u64 = number(&usage);
    let [cpu_us] = counters_of(&cpu, ["usage_usec"]);
    Some(Stats {
        cpu_ns: if is_v2 { cpu_us.saturating_mul(1_000) } else { number(&cpu) },
        memory_bytes,
        working_set_bytes: memory_bytes.saturating_sub(inactive_bytes),
        rss_bytes,
        page_faults,
        major_page_faults,
        pids: number(&pids),
    })
}

/// The numbers of these names in a file with a name and a number in each line.
fn counters_of<const N: usize>(text: &str, names: [&str; N]) -> [u64; N] {
    let mut counters = [0; N];
    for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
        if let Some((_, counter)) = names.iter().zip(&mut counters).find(|(wanted, _)| **wanted == name) {
            *counter = value.trim().parse().unwrap_or(0);
        }
    }
    counters
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tests::mount;
    use super::*;

    const CONTAINER: &str = "burstable/pod/container";

    /// The group of a layout whose hierarchies are all at one directory.
    fn group(root: &Path, files: &[(&str, &str)]) {
        let dir = root.join(CONTAINER);
        std::fs::create_dir_all(&dir).expect("a directory");
        for (name, text) in files {
            std::fs::write(dir.join(name), text).expect("a file");
        }
    }

    /// What both tests have in their files.
    fn read_of_both() -> Stats {
        Stats {
            cpu_ns: 7_000,
            memory_bytes: 5_000,
            working_set_bytes: 4_000,
            rss_bytes: 300,
            page_faults: 12,
            major_page_faults: 3,
            pids: 0,
        }
    }

    #[test]
    fn hierarchies_of_version_1_count_what_is_below_too() {
        let root = tempfile::tempdir().expect("a directory");
        let line = mount(root.path(), "cgroup", "memory,cpu,cpuacct,pids");
        let layout = Layout::parse(line.as_bytes(), &|_| String::new()).expect("a layout");
        let (container, mut reader) = (Group::new(Arc::new(layout), CONTAINER), StatsReader::default());
        assert!(matches!(StatsReader::default().read(&container), Err(RuntimeError::NotFound(_))));
        let memory = "rss 1\ntotal_inactive_file 1000\ntotal_rss 300\ntotal_pgfault 12\ntotal_pgmajfault 3\n";
        let files = [("memory.usage_in_bytes", "5000\n"), ("memory.stat", memory), ("cpuacct.usage", "7000\n"), ("pids.current", "2\n")];
        group(root.path(), &files);
        let wanted = Stats { pids: 2, ..read_of_both() };
        assert_eq!(reader.read(&container).expect("read"), wanted);
        std::fs::remove_file(root.path().join(CONTAINER).join("cpuacct.usage")).expect("removed");
        assert_eq!(reader.read(&container).expect("read"), Stats { cpu_ns: 0, ..wanted });
        std::fs::remove_dir_all(root.path().join("burstable/pod")).expect("removed");
        assert!(matches!(reader.read(&container), Err(RuntimeError::NotFound(_))));
        group(root.path(), &[]);
        assert_eq!(reader.read(&container).expect("read"), Stats::default(), "a group without the files");
    }

    #[test]
    fn the_unified_hierarchy_has_other_names_and_units() {
        let root = tempfile::tempdir().expect("a directory");
        let container = Group::new(Arc::new(Layout::unified_at(root.path())), CONTAINER);
        let files = [
            ("memory.current", "5000\n"),
            ("memory.stat", "anon 300\nfile 9\ninactive_file 1000\npgfault 12\npgmajfault 3\n"),
            ("cpu.stat", "usage_usec 7\nuser_usec 5\n"),
        ];
        group(root.path(), &files);
        assert_eq!(StatsReader::default().read(&container).expect("read"), read_of_both());
        let near_the_root = Group::new(container.layout.clone(), "burstable");
        assert_eq!(StatsReader::default().read(&near_the_root).expect("read"), Stats::default());
    }
}
