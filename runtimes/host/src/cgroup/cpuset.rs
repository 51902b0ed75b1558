//! The CPUs on which the processes of a group may run. The files are written directly: a group without a cpuset must cost nothing, so
//! cgroups-rs does not know this controller here.
//!
//! On v1 the controller has a hierarchy of its own. A new group there has no CPU and no memory node, and no process can enter it; so each
//! level gets its parent's, from the top down. On v2 a group without a value has its parent's, but each parent has to pass the
//! controller on.

use std::fs;
use std::io;
use std::path::Path;

use super::controllers;
use super::layout::{Layout, Mode};
use runtimes_contract::RuntimeError;

/// The controller's name.
pub(super) const CONTROLLER: &str = "cpuset";
/// The file of a group's CPUs, in both versions.
const CPUS: &str = "cpuset.cpus";
/// What a group on v1 must have before a process can enter it.
const NEEDED_ON_V1: [&str; 2] = [CPUS, "cpuset.mems"];

/// Whether the controller is where those for limits are.
pub(super) fn is_available(layout: &Layout) -> bool {
    match root(layout) {
        None => false,
        Some(root) if layout.mode == Mode::V2 => controllers::is_offered(root, CONTROLLER),
        Some(_) => true,
    }
}

/// Sets the CPUs of a group, as a list such as `0-3,8`. On v1 the group is made in the hierarchy of cpusets; returns whether it was new
/// there.
pub(super) fn set(layout: &Layout, path: &str, cpus: &str) -> Result<bool, RuntimeError> {
    if !is_available(layout) {
        return Err(RuntimeError::Missing(
            "the machine has no cgroup controller cpuset beside its other controllers; check the kernel command line for cgroup_disable"
                .to_owned(),
        ));
    }
    let Some(root) = root(layout) else { return Ok(false) };
    let is_new =
        if layout.mode == Mode::V2 { controllers::enable(root, path, &[CONTROLLER]).map(|()| false)? } else { make_on_v1(root, path)? };
    let file = root.join(path).join(CPUS);
    fs::write(&file, cpus).map_err(RuntimeError::io(format!("writing {cpus} to {}", file.display())))?;
    Ok(is_new)
}

/// Puts a process into the group's cpuset on v1, if it has one.
pub(super) fn join(layout: &Layout, path: &str, pid: i32) -> Result<(), RuntimeError> {
    match root(layout).filter(|_| layout.mode != Mode::V2) {
        Some(root) => controllers::join(root, path, pid),
        None => Ok(()),
    }
}

fn root(layout: &Layout) -> Option<&Path> {
    if layout.mode == Mode::V2 { layout.unified() } else { layout.v1_dir(CONTROLLER) }
}

/// Makes the group's directories in the hierarchy, each with what its parent has. Others may do the same at the same time.
fn make_on_v1(root: &Path, path: &str) -> Result<bool, RuntimeError> {
    let mut dir = root.to_owned();
    let mut is_new = false;
    for part in path.split('/') {
        let parent = dir.clone();
        dir.push(part);
        is_new = match fs::create_dir(&dir) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(RuntimeError::io(format!("making {}", dir.display()))(error)),
        };
        for name in NEEDED_ON_V1 {
            fill(&parent.join(name), &dir.join(name))?;
        }
    }
    Ok(is_new)
}

/// Copies the parent's value into an empty file.
fn fill(parent: &Path, file: &Path) -> Result<(), RuntimeError> {
    let read = |path: &Path| fs::read_to_string(path).map_err(RuntimeError::io(format!("reading {}", path.display())));
    if !read(file)?.trim().is_empty() {
        return Ok(());
    }
    let value = read(parent)?;
    fs::write(file, value.trim()).map_err(RuntimeError::io(format!("writing {} to {}", value.trim(), file.display())))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{CONTAINER, tree};
    use super::*;

    #[test]
    fn a_unified_hierarchy_passes_the_controller_on_to_the_group() {
        let root = tree("cpuset cpu memory pids\n");
        let layout = Layout::unified_at(root.path());
        assert!(is_available(&layout));
        assert!(!set(&layout, CONTAINER, "0-1,3").expect("CPUs"));
        let read = |file: &str| fs::read_to_string(root.path().join(file)).expect("a file of a group");
        for dir in ["", "skiff/", "skiff/pod/"] {
            assert_eq!(read(&format!("{dir}cgroup.subtree_control")), "+cpuset", "{dir}");
        }
        assert_eq!(read("skiff/pod/c/cpuset.cpus"), "0-1,3");
        assert!(!root.path().join("skiff/pod/cpuset.cpus").exists(), "parents have what the machine has");
        // The kernel's file lists what is enabled, and is not written again.
        for dir in ["", "skiff/", "skiff/pod/"] {
            fs::write(root.path().join(format!("{dir}cgroup.subtree_control")), "cpuset cpu\n").expect("what a group passes on");
        }
        set(&layout, CONTAINER, "2").expect("CPUs");
        assert_eq!((read("cgroup.subtree_control").as_str(), read("skiff/pod/c/cpuset.cpus").as_str()), ("cpuset cpu\n", "2"));
        join(&layout, CONTAINER, 1).expect("joins");
        assert!(!root.path().join("skiff/pod/c/cgroup.procs").exists(), "a process has one group on v2, which it has joined");
    }

    #[test]
    fn a_machine_without_the_controller_is_reported() {
        let root = tree("cpu memory pids\n");
        let layout = Layout::unified_at(root.path());
        assert!(!is_available(&layout));
        assert!(matches!(set(&layout, CONTAINER, "0"), Err(RuntimeError::Missing(_))));
    }

    #[test]
    fn a_group_on_v1_has_what_its_parents_have_from_the_top_down() {
        let root = tempfile::tempdir().expect("a directory");
        let file = |name: &str| root.path().join(name);
        // What the kernel makes with each directory.
        for dir in ["", "a", "a/b"] {
            fs::create_dir_all(file(dir)).expect("a group");
            for name in NEEDED_ON_V1 {
                fs::write(file(dir).join(name), if dir.is_empty() { "0-3\n" } else { "\n" }).expect("a file of a group");
            }
        }
        fs::write(file("a/cpuset.mems"), "1\n").expect("a file of a group");
        assert!(!make_on_v1(root.path(), "a/b").expect("groups"));
        let read = |name: &str| fs::read_to_string(file(name)).expect("a file of a group");
        assert_eq!([read("a/cpuset.cpus"), read("a/b/cpuset.cpus")], ["0-3", "0-3"]);
        assert_eq!(read("a/b/cpuset.mems"), "1", "an intermediate group's own value counts");
    }
}
