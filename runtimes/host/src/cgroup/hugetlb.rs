//! The huge pages that the processes of a group may have. The files are written directly: cgroups-rs knows neither the limits of
//! reservations nor a hybrid machine whose controllers are on v1 but for this one. Their names have the sizes of the machine's pages.
//!
//! The controller is in a v1 hierarchy of its own, or in the unified hierarchy, on v2 and on hybrid machines alike. A group gets its limits
//! before it has a process. runc puts the processes of a container into the group of that path in each v1 hierarchy that it knows, in the
//! unified hierarchy of v2, and on hybrid machines in that at `/sys/fs/cgroup/unified`.
//!
//! Each size has two limits: of the pages in use, beyond which a process gets SIGBUS, and of those reserved, beyond which mmap(2) fails. Both
//! are set, as runc does, so that a process learns of its limit before it depends on the memory. Kernels before 5.7 have only the first.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::controllers;
use super::layout::{Layout, Mode};
use runtimes_contract::RuntimeError;

/// The controller's name, and the first part of its files' names.
pub(super) const CONTROLLER: &str = "hugetlb";
/// The last parts of the limits' names, in a v1 hierarchy and in the unified one.
const LIMITS_V1: [&str; 2] = ["limit_in_bytes", "rsvd.limit_in_bytes"];
const LIMITS_UNIFIED: [&str; 2] = ["max", "rsvd.max"];

/// The only place at which runc joins the unified hierarchy of a hybrid machine.
const HYBRID_ROOT: &str = "/sys/fs/cgroup/unified";

/// The hierarchy that has the controller.
enum Hierarchy<'a> {
    V1(&'a Path),
    Unified(&'a Path),
}

impl Hierarchy<'_> {
    fn of(layout: &Layout) -> Option<Hierarchy<'_>> {
        let v1 = layout.v1_dir(CONTROLLER).filter(|_| layout.mode != Mode::V2).map(Hierarchy::V1);
        let unified = || layout.unified().filter(|root| controllers::is_offered(root, CONTROLLER)).map(Hierarchy::Unified);
        v1.or_else(unified)
    }

    fn root(&self) -> &Path {
        match self {
            Hierarchy::V1(root) | Hierarchy::Unified(root) => root,
        }
    }

    /// Whether runc puts the processes of containers into its groups.
    fn is_joined(&self, mode: Mode) -> bool {
        match self {
            Hierarchy::V1(_) => true,
            Hierarchy::Unified(root) => mode == Mode::V2 || *root == Path::new(HYBRID_ROOT),
        }
    }

    fn limits(&self) -> [&'static str; 2] {
        match self {
            Hierarchy::V1(_) => LIMITS_V1,
            Hierarchy::Unified(_) => LIMITS_UNIFIED,
        }
    }
}

/// Whether the limits of groups bind all containers.
pub(super) fn is_available(layout: &Layout) -> bool {
    Hierarchy::of(layout).is_some_and(|hierarchy| hierarchy.is_joined(layout.mode))
}

/// Creates a group in the controller's hierarchy and sets the limit of every size, in bytes by the bytes of a page; a size without a limit
/// gets 0. As upstream, a machine without the controller limits nothing.
pub(super) fn limit(layout: &Layout, path: &str, limits: &BTreeMap<u64, u64>) -> Result<(), RuntimeError> {
    let Some(hierarchy) = Hierarchy::of(layout) else { return Ok(()) };
    let dir = hierarchy.root().join(path);
    fs::create_dir_all(&dir).map_err(RuntimeError::io(format!("making {}", dir.display())))?;
    if let Hierarchy::Unified(root) = hierarchy {
        controllers::enable(root, path, &[CONTROLLER])?;
    }
    let listing = || format!("listing {}", dir.display());
    for entry in fs::read_dir(&dir).map_err(RuntimeError::io(listing()))? {
        let name = entry.map_err(RuntimeError::io(listing()))?.file_name();
        let Some(page_bytes) = name.to_str().and_then(|name| page_bytes(name, hierarchy.limits())) else { continue };
        let (file, bytes) = (dir.join(&name), limits.get(&page_bytes).copied().unwrap_or(0));
        fs::write(&file, bytes.to_string()).map_err(RuntimeError::io(format!("writing {bytes} to {}", file.display())))?;
    }
    Ok(())
}

/// Puts a process into the group, if the controller has a hierarchy which the others do not use, and the group is there.
pub(super) fn join(layout: &Layout, path: &str, pid: i32) -> Result<(), RuntimeError> {
    match Hierarchy::of(layout) {
        Some(hierarchy) if layout.mode != Mode::V2 => controllers::join(hierarchy.root(), path, pid),
        _ => Ok(()),
    }
}

/// The size of the pages that a file limits, for example of `hugetlb.2MB.rsvd.max`; `None` for other files.
fn page_bytes(file: &str, limits: [&str; 2]) -> Option<u64> {
    let (size, rest) = file.strip_prefix(CONTROLLER)?.strip_prefix('.')?.split_once('.')?;
    let (number, shift) =
        [("KB", 10), ("MB", 20), ("GB", 30)].into_iter().find_map(|(unit, shift)| Some((size.strip_suffix(unit)?, shift)))?;
    let bytes = number.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    limits.contains(&rest).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{CONTAINER, mount, tree};
    use super::*;

    const UNIFIED: [&str; 6] =
        ["hugetlb.2MB.max", "hugetlb.2MB.rsvd.max", "hugetlb.1GB.max", "hugetlb.1GB.rsvd.max", "hugetlb.2MB.current", "cgroup.procs"];
    const V1: [&str; 4] =
        ["hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.rsvd.limit_in_bytes", "hugetlb.64KB.limit_in_bytes", "hugetlb.2MB.usage_in_bytes"];

    /// A hierarchy whose container has these files.
    fn hierarchy(files: &[&str], controllers: &str) -> tempfile::TempDir {
        let root = tree(controllers);
        for file in files {
            fs::write(root.path().join(CONTAINER).join(file), "max").expect("a file of the group");
        }
        root
    }

    fn layout(unified: Option<&Path>, hugetlb: Option<&Path>) -> Layout {
        let v1 = mount(Path::new("/v1"), "cgroup", "memory,cpu,cpuacct,pids");
        let unified = unified.map(|dir| mount(dir, "cgroup2", "nsdelegate")).unwrap_or_default();
        let hugetlb = hugetlb.map(|dir| mount(dir, "cgroup", CONTROLLER)).unwrap_or_default();
        Layout::parse(format!("{v1}{unified}{hugetlb}").as_bytes(), &|root| {
            fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default()
        })
        .expect("a layout")
    }

    fn read(root: &tempfile::TempDir, file: &str) -> String {
        fs::read_to_string(root.path().join(CONTAINER).join(file)).expect("a file of the group")
    }

    const LIMITS: [(u64, u64); 1] = [(2 << 20, 8 << 20)];

    #[test]
    fn sizes_without_a_limit_get_none() {
        let root = hierarchy(&UNIFIED, "cpu hugetlb memory pids\n");
        let both = [layout(Some(root.path()), None), Layout::unified_at(root.path())];
        assert_eq!(both.each_ref().map(|layout| layout.mode), [Mode::V2, Mode::V2]);
        for layout in both {
            assert!(is_available(&layout));
            limit(&layout, CONTAINER, &LIMITS.into()).expect("limits");
            assert_eq!(UNIFIED.map(|file| read(&root, file)), ["8388608", "8388608", "0", "0", "max", "max"]);
            join(&layout, CONTAINER, 7).expect("joins");
            assert_eq!(read(&root, "cgroup.procs"), "max", "a process has one group on v2, which it has joined");
        }
    }

    #[test]
    fn a_hybrid_machine_has_the_controller_in_its_unified_hierarchy() {
        let root = hierarchy(&UNIFIED, "hugetlb\n");
        let layout = layout(Some(root.path()), None);
        assert_eq!(layout.mode, Mode::Hybrid);
        limit(&layout, CONTAINER, &LIMITS.into()).expect("limits");
        assert_eq!([read(&root, "hugetlb.2MB.max"), read(&root, "hugetlb.1GB.rsvd.max")], ["8388608", "0"]);
        for dir in ["", "skiff/", "skiff/pod/"] {
            let enabled = fs::read_to_string(root.path().join(format!("{dir}cgroup.subtree_control"))).expect("what a group passes on");
            assert_eq!(enabled, "+hugetlb", "{dir}");
        }
        join(&layout, CONTAINER, 7).expect("joins");
        assert_eq!(read(&root, "cgroup.procs"), "7");
        join(&layout, "skiff/other", 7).expect("joins");
        assert!(!root.path().join("skiff/other").exists(), "a group without limits is not there");
        assert!(!is_available(&layout), "runc does not join a hierarchy at this place");
        assert!(Hierarchy::Unified(Path::new("/sys/fs/cgroup/unified")).is_joined(Mode::Hybrid));
    }

    #[test]
    fn a_hierarchy_of_version_1_comes_first() {
        let (unified, v1) = (hierarchy(&UNIFIED, ""), hierarchy(&V1, ""));
        let layout = layout(Some(unified.path()), Some(v1.path()));
        assert!(is_available(&layout));
        limit(&layout, CONTAINER, &LIMITS.into()).expect("limits");
        assert_eq!(V1.map(|file| read(&v1, file)), ["8388608", "8388608", "0", "max"]);
        assert_eq!(read(&unified, "hugetlb.2MB.max"), "max");
        join(&layout, CONTAINER, 7).expect("joins");
        assert_eq!((read(&v1, "cgroup.procs").as_str(), read(&unified, "cgroup.procs").as_str()), ("7", "max"));
    }

    #[test]
    fn a_machine_without_the_controller_limits_nothing() {
        let root = hierarchy(&UNIFIED, "cpu memory pids\n");
        limit(&layout(Some(root.path()), None), CONTAINER, &LIMITS.into()).expect("limits");
        assert_eq!(read(&root, "hugetlb.2MB.max"), "max");
        limit(&layout(None, None), CONTAINER, &LIMITS.into()).expect("limits");
        assert!(!is_available(&layout(Some(root.path()), None)) && !is_available(&layout(None, None)));
    }

    #[test]
    fn files_name_the_size_of_the_page() {
        let sizes = ["hugetlb.64KB.max", "hugetlb.2MB.rsvd.max", "hugetlb.16GB.max"].map(|file| page_bytes(file, LIMITS_UNIFIED));
        assert_eq!(sizes, [Some(64 << 10), Some(2 << 20), Some(16 << 30)]);
        for file in ["hugetlb.2MB.current", "hugetlb.2MB.events", "hugetlb.MB.max", "hugetlb.2TB.max", "memory.max", "hugetlb.2MB"] {
            assert_eq!(page_bytes(file, LIMITS_UNIFIED), None, "{file}");
        }
    }
}
