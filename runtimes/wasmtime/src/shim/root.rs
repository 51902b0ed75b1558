//! The file system of a container: its Pod's namespaces, and an empty root of its own in which only the spec's mounts appear,
//! at their paths. The shim itself needs three files of it (resolv.conf, hosts, hostname: `getaddrinfo` then answers as in the
//! Pod); the guest sees the rest.
//!
//! Mounts are opened as descriptors before the node's mounts are left and attached afterwards, so neither a link in a volume nor a
//! path in the spec can lead back to the node. The working directory is looked up once, within the mount that has it, and attached
//! at a path of its own: it cannot lead out of that mount, and nothing that the guest does later changes what it is.

use std::ffi::CStr;
use std::fs::{self, File};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::Mode;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{chdir, chroot, fchdir};
use runtimes_contract::{ContainerSpec, Mount};
use runtimes_host::files::open_in_root;
use runtimes_host::mounts::{EmptyMounts, attach, detached, detached_at, detached_tmpfs, make_read_only, map_ids};
use runtimes_shim::launch::Refusal;
use wasmtime_wasi::FsPerms;

use super::Failure;
use crate::CODE;
use crate::innermost::innermost;

/// Files that are for the shim's resolver alone.
const RESOLVER_FILES: [&str; 3] = ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"];
/// Where a volume is attached that is the guest's root: our own root has the resolver's files.
const GUEST_ROOT: &str = "/.skiff-guest-root";
/// Where the working directory is attached.
const WORKING_DIR: &str = "/.skiff-working-dir";
/// The bounds and the mode of our own root.
const ROOT_OPTIONS: [(&CStr, &CStr); 3] = [(c"mode", c"755"), (c"size", c"1m"), (c"nr_inodes", c"4k")];
/// No program runs from our own root, and no device and no user's rights are there.
const ROOT_ATTRIBUTES: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;
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

/// Reads the size of a page, which a library reads of `/proc` at first use: stacks of the stack-switching proposal need it, and there is no
/// `/proc` after [`Sources::leave_node`].
pub fn read_page_size() {
    let _page_size = rustix::param::page_size();
}

/// What the root of a container is made of, opened while the files of the node are in reach.
pub struct Sources {
    mounts: Vec<Taken>,
    code: Option<OwnedFd>,
}

impl Sources {
    /// Opens the spec's mounts, and the compiled file if there is one.
    pub fn open(spec: &ContainerSpec, code: Option<&Path>) -> Result<Self, Failure> {
        let user_namespace = spec.sandbox.user.as_ref().map(|user| File::open(&user.path)).transpose();
        let user_namespace = user_namespace.map_err(Failure::io("opening the user namespace"))?;
        let mounts = spec.mounts.iter().map(|wanted| take(wanted, user_namespace.as_ref())).collect::<Result<_, _>>()?;
        let code = code.map(|code| detached_at(code, false).map_err(Failure::io(format!("mounting {}", code.display())))).transpose()?;
        Ok(Self { mounts, code })
    }

    /// Leaves the node's mounts. Only the compiled file is in reach then, as [`CODE`], and nobody can write it by that mount. `empty` is the
    /// path of [`EmptyMounts`].
    ///
    /// There is no `/proc` any more, so that this process seems to be in no cgroup: the engine asks six times for the CPUs that it may use,
    /// and std would read the quotas of all the cgroups above the container each time, which takes a millisecond in all. The threads of a
    /// container follow from its spec instead.
    pub fn leave_node(&self, empty: &Path) -> Result<(), Failure> {
        let (leaving, code) = ("leaving the mounts of the node", Path::new("/").join(CODE));
        EmptyMounts::enter_copy(empty).map_err(Failure::io(leaving))?;
        let Some(tree) = &self.code else { return Ok(()) };
        attach(tree, &code).map_err(Failure::io(leaving))?;
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(None::<&str>, &code, None::<&str>, flags, None::<&str>).map_err(Failure::io(leaving))
    }

    /// Enters a root that contains only the spec's mounts, after [`Sources::leave_node`].
    pub fn enter(self, spec: &ContainerSpec) -> Result<Vec<Preopen>, Failure> {
        let building = "building the root file system";
        let root = detached_tmpfs(&ROOT_OPTIONS, ROOT_ATTRIBUTES).map_err(Failure::io(building))?;
        attach(&root, Path::new("/")).map_err(Failure::io(building))?;
        // What is covered by it has nothing of the node but the compiled file, and no path leads there.
        fchdir(&root).and_then(|()| chroot(".")).and_then(|()| chdir("/")).map_err(Failure::io(building))?;
        fs::create_dir("/etc").map_err(Failure::io(building))?;
        fs::write("/etc/nsswitch.conf", NSSWITCH).map_err(Failure::io(building))?;
        for (wanted, source) in spec.mounts.iter().zip(&self.mounts) {
            set_down(wanted, source)?;
        }
        let are_dirs: Vec<bool> = self.mounts.iter().map(|source| source.is_dir).collect();
        let mut preopens = preopens(&spec.mounts, &are_dirs)?;
        if let Some(working_dir) = WorkingDir::new(&preopens, &spec.working_dir) {
            let preopen = working_dir.attach()?;
            preopens.push(preopen);
        }
        Ok(preopens)
    }
}

/// A mount that is not anywhere yet.
struct Taken {
    tree: OwnedFd,
    is_dir: bool,
}

/// With the ids of the Pod's user namespace, if it has one.
fn take(wanted: &Mount, user_namespace: Option<&File>) -> Result<Taken, Failure> {
    let taking = || format!("mounting {}", wanted.source.display());
    let tree = detached_at(&wanted.source, true).map_err(Failure::io(taking()))?;
    if let Some(namespace) = user_namespace.filter(|_| !wanted.ids_mapped) {
        map_ids(&tree, namespace, &wanted.source).map_err(|error| Failure::new(Refusal::Start, error.to_string()))?;
    }
    let is_dir = fs::metadata(&wanted.source).map_err(Failure::io(taking()))?.is_dir();
    Ok(Taken { tree, is_dir })
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
    attach(&source.tree, target).map_err(Failure::io(mounting()))?;
    // It is a peer of the node's own mount where that is shared: what is attached below it would appear on the node too.
    mount(None::<&str>, target, None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).map_err(Failure::io(mounting()))?;
    harden(target, wanted.read_only).map_err(Failure::io(mounting()))?;
    if wanted.read_only && wanted.recursive_read_only {
        make_read_only(target).map_err(Failure::io(mounting()))?;
    }
    Ok(())
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
/// since WASI has directories only. A volume at `/` is the guest's root, and other mounts are seen at their paths beside it.
fn preopens(mounts: &[Mount], are_dirs: &[bool]) -> Result<Vec<Preopen>, Failure> {
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
    Ok(preopens)
}

fn permissions(read_only: bool) -> FsPerms {
    if read_only { FsPerms::ReadOnly } else { FsPerms::ReadWrite }
}

/// The working directory, which the guest sees as `.` too, since it opens relative paths there.
struct WorkingDir<'a> {
    /// The directory of which it is a part.
    base: &'a Preopen,
    /// Its path from there; empty when it is the same.
    below: &'a Path,
    /// Its path as the guest names it.
    path: &'a Path,
}

impl<'a> WorkingDir<'a> {
    /// `None` when it is `/`, where relative paths begin anyway, or in no directory that the guest is shown.
    fn new(preopens: &'a [Preopen], path: &'a Path) -> Option<Self> {
        let (base, below) = innermost(preopens, |preopen| Path::new(&preopen.name), path)?;
        (path != Path::new("/")).then_some(Self { base, below, path })
    }

    fn attach(&self) -> Result<Preopen, Failure> {
        let attaching = || format!("attaching the working directory {}", self.path.display());
        let dir = self.open().map_err(|errno| match errno {
            Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::ENAMETOOLONG => {
                let message = format!("the working directory {} does not exist in the container", self.path.display());
                Failure::new(Refusal::Start, message)
            }
            errno => Failure::io(attaching())(errno),
        })?;
        let flags = (libc::AT_EMPTY_PATH | libc::AT_RECURSIVE).cast_unsigned();
        let tree = detached(dir.as_fd(), c"", flags).map_err(Failure::io(attaching()))?;
        fs::create_dir(WORKING_DIR).map_err(Failure::io(attaching()))?;
        attach(&tree, Path::new(WORKING_DIR)).map_err(Failure::io(attaching()))?;
        harden(Path::new(WORKING_DIR), self.base.permissions == FsPerms::ReadOnly).map_err(Failure::io(attaching()))?;
        Ok(Preopen { dir: WORKING_DIR.into(), name: ".".into(), permissions: self.base.permissions })
    }

    /// A link and `..` end at the base, as in the root of a container.
    fn open(&self) -> nix::Result<OwnedFd> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        open_in_root(open(&self.base.dir, flags, Mode::empty())?, self.below, flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(target: &str, read_only: bool) -> Mount {
        Mount::new("/srv", target, read_only)
    }

    fn described(mounts: &[Mount], are_dirs: &[bool]) -> Vec<String> {
        let tell = |preopen: Preopen| {
            let mode = if preopen.permissions == FsPerms::ReadOnly { "ro" } else { "rw" };
            format!("{} = {} {mode}", preopen.name, preopen.dir.display())
        };
        preopens(mounts, are_dirs).unwrap().into_iter().map(tell).collect()
    }

    /// The directory that has it, and its path from there.
    fn working_dir(mounts: &[Mount], are_dirs: &[bool], path: &str) -> Option<(String, String)> {
        let preopens = preopens(mounts, are_dirs).unwrap();
        let dir = WorkingDir::new(&preopens, Path::new(path))?;
        Some((dir.base.dir.display().to_string(), dir.below.display().to_string()))
    }

    #[test]
    fn directories_and_the_directories_of_files_are_visible() {
        let mounts =
            [mount("/etc/hosts", false), mount("/data", false), mount("/config/app.toml", true), mount("/dev/termination-log", false)];
        let wanted = ["/data = /data rw", "/config = /config ro", "/dev = /dev rw"];
        assert_eq!(described(&mounts, &[false, true, false, false]), wanted);
    }

    #[test]
    fn a_volume_at_the_root_is_the_guests_root() {
        let mounts = [mount("/", true), mount("/etc/hosts", false), mount("/data", false)];
        let wanted = ["/ = /.skiff-guest-root ro", "/data = /data rw"];
        assert_eq!(described(&mounts, &[true, false, true]), wanted);
        for (path, base, below) in [("/app/x", GUEST_ROOT, "app/x"), ("/..", GUEST_ROOT, ".."), ("/data/x", "/data", "x")] {
            assert_eq!(working_dir(&mounts, &[true, false, true], path), Some((base.into(), below.into())));
        }
        let beside = [mount("/", true), mount("/app.toml", true)];
        let refused = preopens(&beside, &[true, false]).unwrap_err();
        assert!(refused.message.contains("the file /app.toml of another volume cannot be"), "{refused:?}");
    }

    #[test]
    fn undeclared_files_are_not_visible() {
        assert_eq!(described(&[], &[]), [""; 0]);
        assert_eq!(working_dir(&[], &[], "/data"), None);
    }

    #[test]
    fn the_working_directory_is_in_the_innermost_volume() {
        let mounts = [mount("/data", false), mount("/data/keep", true)];
        for (path, base, below) in [("/data/keep/x", "/data/keep", "x"), ("/data/keeper", "/data", "keeper"), ("/data", "/data", "")] {
            assert_eq!(working_dir(&mounts, &[true, true], path), Some((base.into(), below.into())));
        }
        assert_eq!(working_dir(&mounts, &[true, true], "/"), None);
        assert_eq!(working_dir(&mounts, &[true, true], "/other"), None);
    }

    #[test]
    fn two_files_of_one_directory_are_one_preopen() {
        let mounts = [mount("/c/a", true), mount("/c/b", false)];
        assert_eq!(described(&mounts, &[false, false]), ["/c = /c rw"]);
    }
}
