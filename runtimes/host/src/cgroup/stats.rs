//! The use of a group, from the four files that have it. A node reads it of all its containers every few seconds; cgroups-rs reads more
//! than twenty files of a group for the same numbers.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use runtimes_contract::Stats;

use super::layout::{Layout, Mode};

/// The longest of the files, `memory.stat`, has less than half of this.
const FILE_LEN: usize = 8 << 10;

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

/// The use of a group, including groups below it. `None` when there is none of the files; without one of them its numbers are 0.
pub(super) fn read(layout: &Layout, path: &str) -> Option<Stats> {
    let is_v2 = layout.mode == Mode::V2;
    let names = if is_v2 { V2 } else { V1 };
    let text = |controller: &str, file: &str| {
        let root = if is_v2 { layout.unified() } else { layout.v1_dir(controller) };
        read_file(&root?.join(path).join(file))
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

/// A file of a cgroup. The kernel does not say how long it is.
fn read_file(path: &Path) -> Option<String> {
    let mut text = String::with_capacity(FILE_LEN);
    File::open(path).and_then(|file| file.take(FILE_LEN as u64).read_to_string(&mut text)).ok().map(|_| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The group `pod` of a layout whose hierarchies are all at one directory.
    fn group(root: &Path, files: &[(&str, &str)]) {
        let dir = root.join("pod");
        std::fs::create_dir(&dir).expect("a directory");
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
        let line = format!("30 25 0:26 / {} rw - cgroup cgroup rw,memory,cpu,cpuacct,pids\n", root.path().display());
        let layout = Layout::parse(line.as_bytes(), &|_| String::new()).expect("a layout");
        assert_eq!(read(&layout, "pod"), None);
        let memory = "rss 1\ntotal_inactive_file 1000\ntotal_rss 300\ntotal_pgfault 12\ntotal_pgmajfault 3\n";
        let files = [("memory.usage_in_bytes", "5000\n"), ("memory.stat", memory), ("cpuacct.usage", "7000\n"), ("pids.current", "2\n")];
        group(root.path(), &files);
        let wanted = Stats { pids: 2, ..read_of_both() };
        assert_eq!(read(&layout, "pod"), Some(wanted.clone()));
        std::fs::remove_file(root.path().join("pod/cpuacct.usage")).expect("removed");
        assert_eq!(read(&layout, "pod"), Some(Stats { cpu_ns: 0, ..wanted }));
    }

    #[test]
    fn the_unified_hierarchy_has_other_names_and_units() {
        let root = tempfile::tempdir().expect("a directory");
        let layout = Layout::unified_at(root.path());
        assert_eq!(read(&layout, "pod"), None);
        let files = [
            ("memory.current", "5000\n"),
            ("memory.stat", "anon 300\nfile 9\ninactive_file 1000\npgfault 12\npgmajfault 3\n"),
            ("cpu.stat", "usage_usec 7\nuser_usec 5\n"),
        ];
        group(root.path(), &files);
        assert_eq!(read(&layout, "pod"), Some(read_of_both()));
    }
}
