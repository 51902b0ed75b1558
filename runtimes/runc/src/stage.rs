//! The mounts of a container with a user namespace. runc joins the namespace, but before 1.2 it does not map the ids of mounts, and the
//! root of the namespace may not walk through the node's private directories. So the shim makes copies of the mounts, with the ids of
//! the namespace and with their final attributes, which the container cannot take away. It attaches them to an empty file system, the
//! stage, in a mount namespace of its own, in which it calls `runc create`. The mount namespace ends with that call: the node never sees
//! these mounts, and nothing is left of them when the agent, runc or the shim is killed at any time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use runtimes_contract::{ContainerSpec, Content, Mount, Propagation, RuntimeError, UserNamespace};
use serde::{Deserialize, Serialize};

/// The file of a [`Stage`] in the container's directory.
pub const FILE: &str = "stage.json";
/// The directory of the root file system on the stage.
pub const ROOT: &str = "root";

/// Directories that every machine has and that anyone may enter, best first. The stage hides one of them from runc.
const MOUNT_POINTS: [&str; 6] = ["/dev/shm", "/mnt", "/media", "/srv", "/opt", "/home"];

/// What the shim mounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// The directory on which the stage is mounted.
    pub mount_point: PathBuf,
    /// The user namespace.
    pub user: UserNamespace,
    /// The root file system, whose files have the ids of the namespace.
    pub rootfs: PathBuf,
    /// The other mounts. Each is on the stage by its number in this list.
    pub mounts: Vec<Mount>,
}

/// Splits the spec of a container with a user namespace: what the shim mounts, and the spec for runc, whose mounts are on the stage. `None`
/// for a container without a user namespace.
///
/// # Errors
/// [`RuntimeError::Unsupported`] for a mount that the namespace makes impossible.
pub fn stage(spec: &ContainerSpec, mount_point: &Path) -> Result<Option<(Stage, ContainerSpec)>, RuntimeError> {
    let (Some(user), Content::Linux { rootfs }) = (&spec.sandbox.user, &spec.content) else { return Ok(None) };
    if let Some(mount) = spec.mounts.iter().find(|mount| mount.propagation == Propagation::BothWays) {
        return Err(RuntimeError::Unsupported(format!(
            "the mount at {} has mountPropagation Bidirectional, but no mount of a container with a user namespace (hostUsers: false) \
             comes to the node: use HostToContainer or None",
            mount.target.display()
        )));
    }
    if let Some(device) = spec.devices.first() {
        return Err(RuntimeError::Unsupported(format!(
            "the device at {}: a container with a user namespace (hostUsers: false) cannot have devices",
            device.target.display()
        )));
    }
    let mut staged = spec.clone();
    staged.content = Content::Linux { rootfs: mount_point.join(ROOT) };
    for (index, mount) in staged.mounts.iter_mut().enumerate() {
        // The copy has its attributes already.
        *mount = Mount { propagation: mount.propagation, ..Mount::new(mount_point.join(index.to_string()), &mount.target, false) };
    }
    let stage = Stage { mount_point: mount_point.to_owned(), user: user.clone(), rootfs: rootfs.clone(), mounts: spec.mounts.clone() };
    Ok(Some((stage, staged)))
}

/// The stage of a container; `None` for one without a user namespace.
///
/// # Errors
/// When it cannot be read.
pub fn read(dir: &Path) -> io::Result<Option<Stage>> {
    match fs::read(dir.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => Ok(Some(serde_json::from_slice(&read?)?)),
    }
}

/// A directory that runc needs nothing of. `needed` are the paths that it does need.
///
/// # Errors
/// [`RuntimeError::Missing`] when there is none.
pub fn mount_point(needed: &[PathBuf]) -> Result<&'static Path, RuntimeError> {
    // The end of a path may be missing still; its beginning may be a link.
    let real: Vec<PathBuf> = needed.iter().filter_map(|path| path.ancestors().find_map(|above| fs::canonicalize(above).ok())).collect();
    let is_dir = |mount_point: &Path| fs::symlink_metadata(mount_point).is_ok_and(|state| state.is_dir());
    let missing =
        || RuntimeError::Missing(format!("none of {} is a directory that the container runtime does not use", MOUNT_POINTS.join(", ")));
    free_mount_point(&real, is_dir).ok_or_else(missing)
}

fn free_mount_point(needed: &[PathBuf], is_dir: impl Fn(&Path) -> bool) -> Option<&'static Path> {
    MOUNT_POINTS
        .into_iter()
        .map(Path::new)
        .find(|mount_point| is_dir(mount_point) && !needed.iter().any(|path| path.starts_with(mount_point)))
}

#[cfg(test)]
mod tests {
    use runtimes_battery::plain_spec;
    use runtimes_contract::Device;

    use super::*;

    #[test]
    fn the_mounts_of_a_container_with_a_user_namespace_are_staged() {
        let mut spec = ContainerSpec { content: Content::Linux { rootfs: "/private/root".into() }, ..plain_spec("c") };
        let volume = Mount { no_exec: true, recursive_read_only: true, ..Mount::new("/private/volume", "/data", true) };
        spec.mounts = vec![volume.clone(), Mount { propagation: Propagation::FromNode, ..Mount::new("/a", "/b", false) }];
        assert_eq!(stage(&spec, Path::new("/s")).ok(), Some(None));
        let user = UserNamespace { path: "/ns/user".into(), first_id: 65_536 };
        spec.sandbox.user = Some(user.clone());
        let (stage_of, staged) = stage(&spec, Path::new("/s")).expect("possible").expect("staged");
        let wanted = Stage { mount_point: "/s".into(), user, rootfs: "/private/root".into(), mounts: spec.mounts.clone() };
        assert_eq!(stage_of, wanted);
        assert_eq!(staged.content, Content::Linux { rootfs: "/s/root".into() });
        let from_node = Mount { propagation: Propagation::FromNode, ..Mount::new("/s/1", "/b", false) };
        assert_eq!(staged.mounts, [Mount::new("/s/0", "/data", false), from_node]);
        spec.mounts = vec![Mount { propagation: Propagation::BothWays, ..volume }];
        let refused = stage(&spec, Path::new("/s")).expect_err("impossible").to_string();
        assert!(refused.contains("mount at /data has mountPropagation Bidirectional"), "{refused}");
        spec.mounts.clear();
        spec.devices = vec![Device { source: "/dev/loop0".into(), target: "/dev/xvda".into(), access: "r".to_owned() }];
        let refused = stage(&spec, Path::new("/s")).expect_err("impossible").to_string();
        assert!(refused.contains("device at /dev/xvda: a container with a user namespace"), "{refused}");
    }

    #[test]
    fn the_stage_hides_nothing_that_runc_needs() {
        let of = |needed: &[&str], absent: &str| {
            let needed: Vec<PathBuf> = needed.iter().map(PathBuf::from).collect();
            free_mount_point(&needed, |mount_point| mount_point != Path::new(absent))
        };
        assert_eq!(of(&["/var/lib/skiff"], ""), Some(Path::new("/dev/shm")));
        assert_eq!(of(&["/dev/shm/skiff"], ""), Some(Path::new("/mnt")));
        assert_eq!(of(&["/dev/shm", "/home/skiff"], "/mnt"), Some(Path::new("/media")));
        assert_eq!(of(&MOUNT_POINTS, ""), None);
    }
}
