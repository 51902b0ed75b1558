//! What a process gives up before hostile bytes or hostile neighbours can reach it: the node's files, its user, its capabilities
//! and system calls. Each step is permanent. The calling process has one thread.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use caps::{CapSet, CapsHashSet};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, chdir, chroot, pivot_root, setgroups, setresgid, setresuid};
use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompFilter, SeccompRule, apply_filter};

/// No program, no device and no user's rights from a file system.
const SAFE: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC);

/// Makes every mount of this mount namespace private: what is mounted from now on is invisible to the node.
pub fn make_mounts_private() -> nix::Result<()> {
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
}

/// Mounts a file system that nobody may write on a directory. It has nothing but these files, which are empty.
pub fn mount_empty(root: &Path, files: &[&str]) -> io::Result<()> {
    let options = Some("mode=555,size=4k");
    mount(Some("tmpfs"), root, Some("tmpfs"), SAFE, options)?;
    files.iter().try_for_each(|file| File::create(root.join(file)).map(drop))?;
    Ok(mount(None::<&str>, root, None::<&str>, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | SAFE, options)?)
}

/// Mounts a directory on itself. No program runs from there and no device is in it.
pub fn mount_itself(root: &Path) -> nix::Result<()> {
    mount(Some(root), root, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    mount(None::<&str>, root, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REMOUNT | SAFE, None::<&str>)
}

/// Makes the working directory, which is a mount of its own, the root. Every other file is out of reach then.
pub fn enter_working_dir() -> nix::Result<()> {
    match pivot_root(".", ".") {
        Ok(()) => umount2(".", MntFlags::MNT_DETACH)?,
        // A machine that runs from its initramfs has a root that cannot be left by this way.
        Err(Errno::EINVAL) => {
            mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>)?;
            chroot(".")?;
        }
        Err(error) => return Err(error),
    }
    chdir("/")
}

/// Gives up all capabilities but these, and all groups; with an id also the user and the group, which both become that number.
pub fn drop_privileges(retained: &CapsHashSet, id: Option<u32>) -> io::Result<()> {
    caps::clear(None, CapSet::Bounding).map_err(io::Error::other)?;
    setgroups(&[])?;
    if let Some(id) = id {
        let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
        setresgid(gid, gid, gid)?;
        setresuid(uid, uid, uid)?;
    }
    for set in [CapSet::Ambient, CapSet::Inheritable] {
        caps::clear(None, set).map_err(io::Error::other)?;
    }
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, retained).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Gives up everything of a process that only waits, whose neighbours may be hostile: privileges, new privileges, and all system
/// calls but these. Others of its user cannot look into it or trace it.
pub fn give_up_all(id: u32, calls: &[i64]) -> io::Result<()> {
    prctl::set_no_new_privs()?;
    drop_privileges(&CapsHashSet::new(), Some(id))?;
    // Set last: the kernel sets it anew when the user changes.
    prctl::set_dumpable(false)?;
    let rules = calls.iter().map(|&call| (call, Vec::new())).collect();
    let filter = filter(rules, SeccompAction::Errno(libc::EPERM.cast_unsigned()), SeccompAction::Allow).map_err(io::Error::other)?;
    apply_filter(&filter).map_err(io::Error::other)
}

/// A filter of system calls for this machine.
pub(crate) fn filter(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    SeccompFilter::new(rules, otherwise, matched, std::env::consts::ARCH.try_into()?)?.try_into()
}
