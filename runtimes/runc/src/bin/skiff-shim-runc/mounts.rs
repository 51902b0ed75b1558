//! Mounts the stage of a container with a user namespace, in a mount namespace of its own for `runc create`. See [`runtimes_runc::stage`].

use std::fs::{DirBuilder, File};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, fchown};
use std::path::Path;

use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::unistd::{chroot, fchdir};
use runtimes_contract::{Mount, UserNamespace};
use runtimes_host::mounts::{add_attributes, attach, detached_at, map_ids};
use runtimes_runc::stage::{ROOT, Stage};

use crate::Failure;

/// The way back to the mounts of the node.
pub struct Node {
    mounts: File,
    root: OwnedFd,
}

/// Leaves the mounts of the node and mounts the stage.
pub fn enter(stage: &Stage) -> Result<Node, Failure> {
    let node = leave()?;
    set_up(stage)?;
    Ok(node)
}

/// Leaves the mounts of the node for a stage with nothing but an empty root: `runc exec` begins in the directory where the root file system
/// was at `runc create`, and then joins the container's mounts.
pub fn enter_empty(stage: &Stage) -> Result<Node, Failure> {
    let node = leave()?;
    mount_stage(&stage.mount_point)?;
    let root = stage.mount_point.join(ROOT);
    DirBuilder::new().mode(0o755).create(&root).map_err(Failure::io(&mounting(&root)))?;
    Ok(node)
}

fn leave() -> Result<Node, Failure> {
    let leaving = "leaving the mounts of the node";
    let mounts = File::open("/proc/self/ns/mnt").map_err(Failure::io(leaving))?;
    let root = open("/", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).map_err(Failure::io(leaving))?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(Failure::io(leaving))?;
    // What the node mounts and unmounts meanwhile arrives here; nothing goes back.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_SLAVE, None::<&str>).map_err(Failure::io(leaving))?;
    Ok(Node { mounts, root })
}

fn mount_stage(at: &Path) -> Result<(), Failure> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), at, Some("tmpfs"), flags, Some("mode=755,size=1m")).map_err(Failure::io(&mounting(at)))
}

impl Node {
    /// Goes back; the kernel frees the stage.
    pub fn back(self) -> Result<(), Failure> {
        let returning = "going back to the mounts of the node";
        setns(self.mounts.as_fd(), CloneFlags::CLONE_NEWNS).map_err(Failure::io(returning))?;
        fchdir(&self.root).map_err(Failure::io(returning))?;
        chroot(".").map_err(Failure::io(returning))
    }
}

/// Copies all mounts before the stage hides any of them.
fn set_up(stage: &Stage) -> Result<(), Failure> {
    let namespace = File::open(&stage.user.path).map_err(Failure::io("opening the user namespace"))?;
    let copies: Vec<OwnedFd> = stage.mounts.iter().map(|wanted| copy(wanted, &namespace)).collect::<Result<_, _>>()?;
    let root = detached_at(&stage.rootfs, false).map_err(Failure::io(&mounting(&stage.rootfs)))?;
    let at = &stage.mount_point;
    mount_stage(at)?;
    set_down(&root, &at.join(ROOT))?;
    copies.iter().enumerate().try_for_each(|(index, tree)| set_down(tree, &at.join(index.to_string())))
}

/// A copy with its final attributes. The container cannot change them: its mounts belong to another user namespace.
fn copy(wanted: &Mount, namespace: &File) -> Result<OwnedFd, Failure> {
    let source = &wanted.source;
    let tree = detached_at(source, true).map_err(Failure::io(&mounting(source)))?;
    if !wanted.ids_mapped {
        map_ids(&tree, namespace, source).map_err(|error| Failure { kind: "content", message: error.to_string() })?;
    }
    let mut attributes = 0;
    attributes |= if wanted.read_only { libc::MOUNT_ATTR_RDONLY } else { 0 };
    attributes |= if wanted.no_exec { libc::MOUNT_ATTR_NOEXEC } else { 0 };
    add_attributes(&tree, attributes, false).map_err(Failure::io(&mounting(source)))?;
    if wanted.read_only && wanted.recursive_read_only {
        add_attributes(&tree, libc::MOUNT_ATTR_RDONLY, true).map_err(Failure::io(&mounting(source)))?;
    }
    Ok(tree)
}

fn set_down(tree: &OwnedFd, at: &Path) -> Result<(), Failure> {
    let state = fstat(tree).map_err(Failure::io(&mounting(at)))?;
    let made = if kind(&state) == SFlag::S_IFDIR { DirBuilder::new().mode(0o755).create(at) } else { File::create(at).map(drop) };
    made.and_then(|()| attach(tree, at)).map_err(Failure::io(&mounting(at)))
}

fn mounting(path: &Path) -> String {
    format!("mounting {}", path.display())
}

/// Gives a pipe to the root of the namespace, so that the container may open it again as `/dev/stdout`. runc gives it on to the
/// container's user. A device of the node stays the node's.
pub fn give(pipe: &OwnedFd, user: &UserNamespace) -> Result<(), Failure> {
    let giving = "giving a pipe to the container";
    let state = fstat(pipe).map_err(Failure::io(giving))?;
    if kind(&state) != SFlag::S_IFIFO {
        return Ok(());
    }
    fchown(pipe, Some(user.first_id), Some(user.first_id)).map_err(Failure::io(giving))
}

fn kind(state: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(state.st_mode) & SFlag::S_IFMT
}
