//! The swap of a group, as cAdvisor reads it.

use super::group::Group;
use super::stats::StatsReader;

/// The swap of a group, including groups below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swap {
    /// Bytes in use.
    pub usage_bytes: u64,
    /// The limit. `None` without one, and in hierarchies of version 1, which limit only the sum of memory and swap.
    pub limit_bytes: Option<u64>,
}

impl StatsReader {
    /// The swap of a group; `None` when the kernel does not count it by group. Blocks.
    pub fn swap(&mut self, group: &Group) -> Option<Swap> {
        let Some(dir) = group.unified_dir() else { return self.swap_of_v1(group) };
        let usage_bytes = self.text(&dir, "memory.swap.current")?.trim().parse().ok()?;
        // The text `max` is no number.
        let limit_bytes = self.text(&dir, "memory.swap.max").and_then(|limit| limit.trim().parse().ok());
        Some(Swap { usage_bytes, limit_bytes })
    }

    fn swap_of_v1(&mut self, group: &Group) -> Option<Swap> {
        let counters = self.text(&group.layout.v1_dir("memory")?.join(&group.path), "memory.stat")?;
        let usage = counters.lines().find_map(|line| line.strip_prefix("total_swap "))?;
        Some(Swap { usage_bytes: usage.trim().parse().ok()?, limit_bytes: None })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::super::layout::Layout;
    use super::super::tests::mount;
    use super::*;

    /// The swap of a group with these files.
    fn swap(layout: Layout, root: &Path, files: &[(&str, &str)]) -> Option<Swap> {
        let group = Group::new(Arc::new(layout), "burstable/pod/container");
        let dir = root.join(group.path());
        std::fs::create_dir_all(&dir).expect("a directory");
        for (name, text) in files {
            std::fs::write(dir.join(name), text).expect("a file");
        }
        StatsReader::default().swap(&group)
    }

    #[test]
    fn the_unified_hierarchy_counts_and_limits_swap_apart_from_memory() {
        let root = tempfile::tempdir().expect("a directory");
        let swap = |files: &[(&str, &str)]| swap(Layout::unified_at(root.path()), root.path(), files);
        assert_eq!(swap(&[("memory.current", "5000\n")]), None, "a kernel without swap");
        let unlimited = [("memory.swap.current", "4096\n"), ("memory.swap.max", "max\n")];
        assert_eq!(swap(&unlimited), Some(Swap { usage_bytes: 4_096, limit_bytes: None }));
        let limited = [("memory.swap.current", "0\n"), ("memory.swap.max", "0\n")];
        assert_eq!(swap(&limited), Some(Swap { usage_bytes: 0, limit_bytes: Some(0) }));
    }

    #[test]
    fn version_1_counts_it_among_the_memory() {
        let root = tempfile::tempdir().expect("a directory");
        let line = mount(root.path(), "cgroup", "memory,cpu,cpuacct,pids");
        let swap = |text: &str| {
            let layout = Layout::parse(line.as_bytes(), &|_| String::new()).expect("a layout");
            swap(layout, root.path(), &[("memory.stat", text)])
        };
        assert_eq!(swap("swap 1\ntotal_rss 3\n"), None, "no accounting of swap");
        let counted = swap("swap 1\nswapcached 2\ntotal_rss 3\ntotal_swap 8192\ntotal_swapcached 7\n");
        assert_eq!(counted, Some(Swap { usage_bytes: 8_192, limit_bytes: None }));
    }
}
