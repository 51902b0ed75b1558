//! Verifies what `runc create` has made, before anything of the container runs. runc hides the kernel's files with files that
//! it finds in the container (it binds the container's own `/dev/null` over them), and another container that shares a volume
//! can change them in between (CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881; the working directory of CVE-2024-21626). So
//! the result of the request to runc is checked: the container has its mounts by now, and its process waits for its start.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, SFlag, fstat, major, makedev};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use oci_spec::runtime::Spec;
use runtimes_host::process::ProcessRef;
use runtimes_shim::record::TARGET_ANNOTATION;

use crate::Failure;

/// Device numbers of pseudo-terminals.
const TERMINALS: std::ops::RangeInclusive<u64> = 136..=143;
/// The levels of a working directory; the kernel accepts no longer path.
const LEVELS_MAX: u32 = 4096;

/// Rejects a container that sees what the spec hides, may write what the spec protects, or has its working directory outside of
/// its root.
pub fn verify(init: i32, config: &Path) -> Result<(), Failure> {
    let reading = "reading the container's spec";
    let text = std::fs::read(config).map_err(Failure::io(reading))?;
    let spec: Spec = serde_json::from_slice(&text).map_err(Failure::io(reading))?;
    let root = open(Path::new(&format!("/proc/{init}/root"))).map_err(Failure::io("looking at the container"))?;
    let linux = spec.linux().as_ref();
    let paths = |paths: Option<&Option<Vec<String>>>| paths.cloned().flatten().unwrap_or_default();
    for path in paths(linux.map(|linux| linux.masked_paths())) {
        check(&root, &path, "is not hidden from the container", is_hidden)?;
    }
    for path in paths(linux.map(|linux| linux.readonly_paths())) {
        check(&root, &path, "is not protected from the container", |found| Ok(fstatvfs(found)?.flags().contains(FsFlags::ST_RDONLY)))?;
    }
    if spec.process().as_ref().and_then(|process| process.terminal()) == Some(true) {
        let is_terminal = |found: &OwnedFd| {
            let stat = fstat(found)?;
            Ok(is(&stat, SFlag::S_IFCHR) && TERMINALS.contains(&major(stat.st_rdev)))
        };
        check(&root, "/dev/console", "is not the container's terminal", is_terminal)?;
    }
    target_runs(&spec)?;
    stands_inside(init, &root)
}

/// Rejects a container whose target has ended since its spec was made: by the same pid, runc may have joined the namespace of
/// another process, even that of the node. A target that runs now has had its pid all the time.
fn target_runs(spec: &Spec) -> Result<(), Failure> {
    let Some(target) = spec.annotations().as_ref().and_then(|all| all.get(TARGET_ANNOTATION)) else { return Ok(()) };
    match ProcessRef::decode(target) {
        Some(target) if target.is_alive() => Ok(()),
        _ => Err(refused("the container whose processes it shares has ended".to_owned())),
    }
}

fn check(root: &OwnedFd, path: &str, problem: &str, holds: impl Fn(&OwnedFd) -> nix::Result<bool>) -> Result<(), Failure> {
    // A link in the path would lead to another place for the container's programs.
    let inside = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC).resolve(inside);
    let found = match openat2(root.as_fd(), path, how) {
        // This kernel has no such file.
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(()),
        found => found,
    };
    match found.and_then(|found| holds(&found)) {
        Ok(true) => Ok(()),
        Ok(false) => Err(refused(format!("{path} {problem}"))),
        Err(error) => Err(refused(format!("{path} {problem}: {}", error.desc()))),
    }
}

/// An empty file or an empty directory in its place.
fn is_hidden(found: &OwnedFd) -> nix::Result<bool> {
    let stat = fstat(found)?;
    if is(&stat, SFlag::S_IFDIR) {
        return Ok(fstatfs(found)?.filesystem_type() == TMPFS_MAGIC && fstatvfs(found)?.flags().contains(FsFlags::ST_RDONLY));
    }
    Ok(is(&stat, SFlag::S_IFCHR) && stat.st_rdev == makedev(1, 3))
}

fn is(stat: &FileStat, kind: SFlag) -> bool {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == kind
}

/// Walks up from the working directory: the way ends in the container's root, not in the node's.
fn stands_inside(init: i32, root: &OwnedFd) -> Result<(), Failure> {
    let looking = "looking at the container's working directory";
    let identity = |dir: &OwnedFd| fstat(dir).map(|stat| (stat.st_dev, stat.st_ino)).map_err(Failure::io(looking));
    let root = identity(root)?;
    let mut dir = open(Path::new(&format!("/proc/{init}/cwd"))).map_err(Failure::io(looking))?;
    for _ in 0..LEVELS_MAX {
        let here = identity(&dir)?;
        if here == root {
            return Ok(());
        }
        let up = openat2(dir.as_fd(), "..", OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC)).map_err(Failure::io(looking))?;
        if identity(&up)? == here {
            break;
        }
        dir = up;
    }
    Err(refused("its working directory is outside of its root file system".to_owned()))
}

fn open(path: &Path) -> nix::Result<OwnedFd> {
    openat2(nix::fcntl::AT_FDCWD, path, OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC))
}

fn refused(what: String) -> Failure {
    Failure { kind: "content", message: format!("the container is not as it was asked for, and does not run: {what}") }
}
