//! The mounts of a container: the kernel's file systems, then the spec's own.

use runtimes_contract::{ContainerSpec, Mount, Propagation};
use serde_json::{Value, json};

/// The mount option with which what is mounted below a source is read-only too.
pub const RECURSIVE_READ_ONLY: &str = "rro";

/// All mounts, in order. A mount of the spec replaces the default one at the same path.
pub fn mounts(spec: &ContainerSpec) -> Vec<Value> {
    let own = |target: &str| spec.mounts.iter().any(|mount| mount.target.to_str().is_some_and(|path| path.trim_end_matches('/') == target));
    let defaults = defaults(spec.security.privileged).into_iter().filter(|(target, ..)| !own(target));
    let kernel = defaults.map(|(target, kind, options)| json!({ "destination": target, "type": kind, "source": kind, "options": options }));
    kernel.chain(spec.mounts.iter().map(bind)).collect()
}

fn defaults(privileged: bool) -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let rights = if privileged { "rw" } else { "ro" };
    vec![
        ("/proc", "proc", vec!["nosuid", "noexec", "nodev"]),
        ("/dev", "tmpfs", vec!["nosuid", "strictatime", "mode=755", "size=65536k"]),
        ("/dev/pts", "devpts", vec!["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
        ("/dev/shm", "tmpfs", vec!["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
        ("/dev/mqueue", "mqueue", vec!["nosuid", "noexec", "nodev"]),
        ("/sys", "sysfs", vec!["nosuid", "noexec", "nodev", rights]),
        ("/sys/fs/cgroup", "cgroup", vec!["nosuid", "noexec", "nodev", "relatime", rights]),
    ]
}

/// The propagation of the root's own mount that its mounts need, as containerd sets it; by default it is private.
pub fn root_propagation(spec: &ContainerSpec) -> Option<&'static str> {
    let wants = |wanted: Propagation| spec.mounts.iter().any(|mount| mount.propagation == wanted);
    match (wants(Propagation::BothWays), wants(Propagation::FromNode)) {
        (true, _) => Some("rshared"),
        (false, true) => Some("rslave"),
        (false, false) => None,
    }
}

fn bind(mount: &Mount) -> Value {
    let rights = match (mount.read_only, mount.recursive_read_only) {
        (true, true) => RECURSIVE_READ_ONLY,
        (true, false) => "ro",
        (false, _) => "rw",
    };
    let shared = match mount.propagation {
        Propagation::Private => "rprivate",
        Propagation::FromNode => "rslave",
        Propagation::BothWays => "rshared",
    };
    let mut options = vec!["rbind", shared, rights];
    options.extend(mount.no_exec.then_some("noexec"));
    json!({ "destination": mount.target, "type": "bind", "source": mount.source, "options": options })
}
