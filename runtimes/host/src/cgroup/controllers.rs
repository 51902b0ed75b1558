//! The controllers of a unified hierarchy: which ones it has, and which ones its groups pass on. Joining a group of one hierarchy.

use std::fs;
use std::io;
use std::path::Path;

use runtimes_contract::RuntimeError;

/// Whether a hierarchy has a controller.
pub(super) fn is_offered(root: &Path, name: &str) -> bool {
    has(&fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default(), name)
}

/// Enables those of the controllers that the hierarchy has, below each parent of the group. cgroups-rs enables controllers when it creates
/// the directories, and returns no error when it cannot.
pub(super) fn enable(root: &Path, path: &str, names: &[&str]) -> Result<(), RuntimeError> {
    let offered = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    let mut dir = root.to_owned();
    for part in path.split('/') {
        let file = dir.join("cgroup.subtree_control");
        let enabled = fs::read_to_string(&file).map_err(RuntimeError::io(format!("reading {}", file.display())))?;
        for name in names.iter().filter(|name| has(&offered, name) && !has(&enabled, name)) {
            fs::write(&file, format!("+{name}")).map_err(RuntimeError::io(format!("switching on {name} in {}", file.display())))?;
        }
        dir.push(part);
    }
    Ok(())
}

/// Puts a process into a group of a hierarchy, if the group is there.
pub(super) fn join(root: &Path, path: &str, pid: i32) -> Result<(), RuntimeError> {
    let file = root.join(path).join("cgroup.procs");
    match fs::write(&file, pid.to_string()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        written => written.map_err(RuntimeError::io(format!("putting process {pid} into {}", file.display()))),
    }
}

fn has(list: &str, name: &str) -> bool {
    list.split_whitespace().any(|one| one == name)
}
