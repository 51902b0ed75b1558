//! Processes that others move, for example runc. Before the kernel moves a process with all its threads, it waits for an RCU grace period
//! (11 ms on a machine that has nothing else to do). For a grace period after that, it moves further ones at once. So who knows
//! of a move in advance makes one itself, beside other work.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use super::layout::{Layout, Mode};

/// The v1 hierarchy that is asked; the wait is one for all hierarchies.
const CONTROLLER: &str = "pids";

/// Moves this process to where it is, unless that is being done. Blocks for the wait.
pub(super) fn prepare(layout: &Layout) -> io::Result<()> {
    static IS_BEING_DONE: AtomicBool = AtomicBool::new(false);
    if IS_BEING_DONE.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    let moved = move_to_where_it_is(layout);
    IS_BEING_DONE.store(false, Ordering::Release);
    moved
}

fn move_to_where_it_is(layout: &Layout) -> io::Result<()> {
    let membership = fs::read_to_string("/proc/self/cgroup")?;
    let dir = own_dir(layout, &membership).ok_or_else(|| io::Error::other(format!("not in a hierarchy: {membership}")))?;
    // Not created where it does not exist, as in a container that sees other groups than its own.
    fs::File::options().write(true).open(dir.join("cgroup.procs"))?.write_all(b"0")
}

/// The directory of this process' group, from the lines `number:controllers:path` of `/proc/self/cgroup`.
fn own_dir(layout: &Layout, membership: &str) -> Option<PathBuf> {
    let (root, controller) = match layout.mode {
        Mode::V2 => (layout.unified()?, ""),
        Mode::V1 | Mode::Hybrid => (layout.v1_dir(CONTROLLER)?, CONTROLLER),
    };
    let path = membership.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|bound| bound == controller).then_some(path)
    })?;
    Some(root.join(path.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Cgroups;
    use super::super::tests::mount;
    use super::*;

    #[test]
    fn the_own_group_is_found_in_each_version() {
        let membership = "12:hugetlb:/h\n8:pids,rdma:/system.slice/skiff.service\n1:name=systemd:/s\n0::/unified\n";
        let own = |layout: &Layout| own_dir(layout, membership);
        let v1: String = ["memory", "cpu,cpuacct", "pids,rdma"].map(|names| mount(&Path::new("/cg").join(names), "cgroup", names)).concat();
        let v1 = Layout::parse(v1.as_bytes(), &|_| String::new()).expect("a layout");
        assert_eq!(own(&v1), Some("/cg/pids,rdma/system.slice/skiff.service".into()));
        assert_eq!(own(&Layout::unified_at(Path::new("/cg"))), Some("/cg/unified".into()));
        assert_eq!(own_dir(&v1, "0::/unified\n"), None);
    }

    #[test]
    fn a_process_stays_where_it_is() {
        let membership = || fs::read_to_string("/proc/self/cgroup").expect("/proc");
        let before = membership();
        Cgroups::detect().expect("cgroups").prepare_moves().expect("moved");
        assert_eq!(membership(), before);
    }
}
