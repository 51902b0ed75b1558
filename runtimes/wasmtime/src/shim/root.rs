//! The file system of a container: its Pod's namespaces, and an empty root of its own in which only the spec's mounts appear,
//! at their paths. The shim itself needs three files of it (resolv.conf, hosts, hostname: `getaddrinfo` then answers as in the
//! Pod); the guest sees the rest.
//!
//! Mounts are opened as descriptors before the old root is left and attached afterwards, so neither a link in a volume nor a
//! path in the spec can lead back to the node.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{chdir, pivot_root};
use runtimes_contract::{ContainerSpec, Mount};
use runtimes_shim::launch::Refusal;
use wasmtime_wasi::FsPerms;

use super::Failure;

/// Files that are for the shim's resolver alone.
const RESOLVER_FILES: [&str; 3] = ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"];
/// Where a volume is attached that is the guest's root: our own root has the resolver's files.
const GUEST_ROOT: &str = "/.skiff-guest-root";
/// Name services that are built into glibc; a distribution's choice would want its plug-ins.
const NSSWITCH: &str = "hosts: files dns\n";

/// A directory that the guest is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Preopen {
    /// In our root.
    pub dir: PathBuf,
    /// As the guest names it.
    pub name: String,
    /// Whether the guest may write there.
    pub permissions: FsPerms,
}

/// Joins the Pod's network, IPC and UTS namespaces.
pub fn join_namespaces(spec: &ContainerSpec) -> Result<(), Failure> {
    let sandbox = &spec.sandbox;
    let namespaces =
        [(&sandbox.network, CloneFlags::CLONE_NEWNET), (&sandbox.ipc, CloneFlags::CLONE_NEWIPC), (&sandbox.uts, CloneFlags::CLONE_NEWUTS)];
    for (path, kind) in namespaces {
        if let Some(path) = path {
            let joining = || format!("joining the namespace {}", path.display());
            let namespace = File::open(path).map_err(Failure::io(joining()))?;
            setns(namespace.as_fd(), kind).map_err(Failure::io(joining()))?;
        }
    }
    Ok(())
}

/// Leaves the node's file system for one that contains only the spec's mounts. `root` is an empty directory to build it on.
pub fn enter(spec: &ContainerSpec, root: &Path) -> Result<Vec<Preopen>, Failure> {
    let building = "building the root file system";
    unshare(CloneFlags::CLONE_NEWNS).map_err(Failure::io(building))?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).map_err(Failure::io(building))?;
    let mut taken = Vec::new();
    for wanted in &spec.mounts {
        taken.push((wanted, take(wanted)?));
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), root, Some("tmpfs"), flags, Some("mode=755,size=1m,nr_inodes=4k")).map_err(Failure::io(building))?;
    chdir(root).map_err(Failure::io(building))?;
    pivot_root(".", ".").map_err(Failure::io(building))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(Failure::io(building))?;
    chdir("/").map_err(Failure::io(building))?;
    fs::create_dir("/etc").map_err(Failure::io(building))?;
    fs::write("/etc/nsswitch.conf", NSSWITCH).map_err(Failure::io(building))?;
    for (wanted, source) in &taken {
        set_down(wanted, source)?;
    }
    let are_dirs: Vec<bool> = taken.iter().map(|(_, source)| source.is_dir).collect();
    let preopens = preopens(&spec.mounts, &are_dirs, &spec.working_dir)?;
    match preopens.iter().find(|preopen| !preopen.dir.is_dir()) {
        Some(missing) if missing.name == "." => {
            let message = format!("the working directory {} does not exist in the container", spec.working_dir.display());
            Err(Failure::new(Refusal::Start, message))
        }
        _ => Ok(preopens),
    }
}

/// A mount that is not anywhere yet.
struct Taken {
    tree: OwnedFd,
    is_dir: bool,
}

fn take(wanted: &Mount) -> Result<Taken, Failure> {
    let taking = || format!("mounting {}", wanted.source.display());
    let source = CString::new(wanted.source.as_os_str().as_bytes()).map_err(Failure::io(taking()))?;
    let tree = detached(&source, libc::AT_RECURSIVE.cast_unsigned()).map_err(Failure::io(taking()))?;
    let is_dir = fs::metadata(&wanted.source).map_err(Failure::io(taking()))?.is_dir();
    Ok(Taken { tree, is_dir })
}

/// A copy of a mount (with `AT_RECURSIVE` also of those below) from this path on, which is not attached: there is nothing above
/// it to walk to.
pub fn detached(path: &CStr, flags: libc::c_uint) -> io::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | flags;
    // SAFETY: a path that lives through the call; the result is a new descriptor or -1.
    let tree = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    let tree = i32::try_from(tree).ok().filter(|&fd| fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(tree) })
}

/// A path of the guest in our root.
fn path_in_root(target: &Path) -> &Path {
    if target == Path::new("/") { Path::new(GUEST_ROOT) } else { target }
}

fn set_down(wanted: &Mount, source: &Taken) -> Result<(), Failure> {
    let mounting = || format!("mounting {}", wanted.target.display());
    let target = path_in_root(&wanted.target);
    if !target.is_absolute() || target.components().any(|part| part == Component::ParentDir) {
        return Err(Failure::new(Refusal::Start, format!("{}: not an absolute path", mounting())));
    }
    if source.is_dir {
        fs::create_dir_all(target).map_err(Failure::io(mounting()))?;
    } else {
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(Failure::io(mounting()))?;
        }
        File::options().write(true).create(true).truncate(false).open(target).map_err(Failure::io(mounting()))?;
    }
    let path = CString::new(target.as_os_str().as_bytes()).map_err(Failure::io(mounting()))?;
    // SAFETY: a descriptor and paths that live through the call.
    let moved = unsafe {
        let from = source.tree.as_raw_fd();
        libc::syscall(libc::SYS_move_mount, from, c"".as_ptr(), libc::AT_FDCWD, path.as_ptr(), libc::MOVE_MOUNT_F_EMPTY_PATH)
    };
    if moved != 0 {
        return Err(Failure::io(mounting())(io::Error::last_os_error()));
    }
    harden(target, wanted.read_only).map_err(Failure::io(mounting()))
}

/// No program runs from a volume and no device is in it. A read-only mount stays read-only.
fn harden(target: &Path, read_only: bool) -> nix::Result<()> {
    let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    if read_only || statvfs(target)?.flags().contains(FsFlags::ST_RDONLY) {
        flags |= MsFlags::MS_RDONLY;
    }
    mount(None::<&str>, target, None::<&str>, flags, None::<&str>)
}

/// What the guest sees. A mounted directory is a preopen of the same name; a mounted file is in the preopen of its directory,
/// since WASI has directories only. A volume at `/` is the guest's root, and other mounts are seen at their paths beside it. The
/// working directory is `.` too, for guests that open relative paths.
fn preopens(mounts: &[Mount], are_dirs: &[bool], working_dir: &Path) -> Result<Vec<Preopen>, Failure> {
    let mut preopens: Vec<Preopen> = Vec::new();
    for (mount, &is_dir) in mounts.iter().zip(are_dirs) {
        if RESOLVER_FILES.iter().any(|file| Path::new(file) == mount.target) {
            continue;
        }
        let guest_dir = if is_dir { Some(mount.target.as_path()) } else { mount.target.parent() };
        let Some(guest_dir) = guest_dir else { continue };
        let name = guest_dir.to_str().ok_or_else(|| Failure::new(Refusal::Start, format!("{}: not UTF-8", guest_dir.display())))?;
        if !is_dir && name == "/" && mounts.iter().any(|other| other.target == guest_dir) {
            let file = mount.target.display();
            let message = format!("a volume is mounted at /, so the file {file} of another volume cannot be in the same directory");
            return Err(Failure::new(Refusal::Start, message));
        }
        let dir = if is_dir { path_in_root(guest_dir) } else { guest_dir };
        match preopens.iter_mut().find(|preopen| preopen.dir == dir) {
            // Several files in one directory; the kernel enforces those that are read-only.
            Some(preopen) if !mount.read_only => preopen.permissions = FsPerms::ReadWrite,
            Some(_) => {}
            None => preopens.push(Preopen { dir: dir.to_owned(), name: name.to_owned(), permissions: permissions(mount.read_only) }),
        }
    }
    let here = preopens.iter().filter(|preopen| working_dir.starts_with(&preopen.name)).max_by_key(|preopen| preopen.name.len());
    if let Some((here, below)) = here.and_then(|here| Some((here, working_dir.strip_prefix(&here.name).ok()?)))
        && working_dir != Path::new("/")
    {
        // A path that is joined with nothing ends in a slash, which its components do not.
        let dir = here.dir.join(below).components().collect();
        let here = Preopen { dir, name: ".".into(), permissions: here.permissions };
        preopens.push(here);
    }
    Ok(preopens)
}

fn permissions(read_only: bool) -> FsPerms {
    if read_only { FsPerms::ReadOnly } else { FsPerms::ReadWrite }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(target: &str, read_only: bool) -> Mount {
        Mount::new("/srv", target, read_only)
    }

    fn described(mounts: &[Mount], are_dirs: &[bool], working_dir: &str) -> Vec<String> {
        let tell = |preopen: Preopen| {
            let mode = if preopen.permissions == FsPerms::ReadOnly { "ro" } else { "rw" };
            format!("{} = {} {mode}", preopen.name, preopen.dir.display())
        };
        preopens(mounts, are_dirs, Path::new(working_dir)).unwrap().into_iter().map(tell).collect()
    }

    #[test]
    fn directories_and_the_directories_of_files_are_visible() {
        let mounts =
            [mount("/etc/hosts", false), mount("/data", false), mount("/config/app.toml", true), mount("/dev/termination-log", false)];
        let wanted = ["/data = /data rw", "/config = /config ro", "/dev = /dev rw"];
        assert_eq!(described(&mounts, &[false, true, false, false], "/"), wanted);
    }

    #[test]
    fn a_volume_at_the_root_is_the_guests_root() {
        let mounts = [mount("/", true), mount("/etc/hosts", false), mount("/data", false)];
        let wanted = ["/ = /.skiff-guest-root ro", "/data = /data rw"];
        assert_eq!(described(&mounts, &[true, false, true], "/"), wanted);
        for (working_dir, here) in [("/app/x", ". = /.skiff-guest-root/app/x ro"), ("/data/x", ". = /data/x rw")] {
            assert_eq!(described(&mounts, &[true, false, true], working_dir).last().unwrap(), here);
        }
        let beside = [mount("/", true), mount("/app.toml", true)];
        let refused = preopens(&beside, &[true, false], Path::new("/")).unwrap_err();
        assert!(refused.message.contains("the file /app.toml of another volume cannot be"), "{refused:?}");
    }

    #[test]
    fn undeclared_files_are_not_visible() {
        assert_eq!(described(&[], &[], "/"), [""; 0]);
        assert_eq!(described(&[], &[], "/data"), [""; 0]);
    }

    #[test]
    fn the_working_directory_is_also_here() {
        let mounts = [mount("/data", false), mount("/data/keep", true)];
        assert_eq!(described(&mounts, &[true, true], "/data/keep/x").last().unwrap(), ". = /data/keep/x ro");
        assert_eq!(described(&mounts, &[true, true], "/data").last().unwrap(), ". = /data rw");
    }

    #[test]
    fn two_files_of_one_directory_are_one_preopen() {
        let mounts = [mount("/c/a", true), mount("/c/b", false)];
        assert_eq!(described(&mounts, &[false, false], "/"), ["/c = /c rw"]);
    }
}
