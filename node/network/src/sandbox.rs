//! A Pod's namespaces: network, IPC and UTS, created by a thread that ends at once (with a user namespace that owns them, by a child of
//! it) and pinned as bind mounts of files, so that no process must keep them alive and they outlive their creator. The files are
//! `<state_dir>/ns/<uid>/{user,net,ipc,uts}`; `ns` is a private mount of its own, so that pins are not copied into the mount namespaces
//! that follow the machine's. After a kill at any point the sandbox is built again from nothing: an incomplete sandbox has never had a
//! container in it.

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use ipnet::Ipv4Net;
use nix::errno::Errno;
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statfs::{FsType, statfs};
use runtimes_contract::{RuntimeError, Sandbox, UserNamespace};
use runtimes_host::files::private_dir;
use runtimes_host::user_namespace::{Owned, UserNamespaceError};

use crate::NetworkError;
use crate::netlink::message::{self, Target};
use crate::netlink::{Request, Socket};
use crate::proc_mount::ProcMount;

/// `NSFS_MAGIC` of `<linux/magic.h>`.
const NSFS: FsType = FsType(0x6e73_6673);
/// The interface's name inside a Pod, as everywhere.
const INSIDE: &str = "eth0";
/// The namespaces of every Pod by the kernel's names for them, and the one that only some Pods have.
const KINDS: [&str; 3] = ["net", "ipc", "uts"];
const USER: &str = "user";
/// Sysctls of a Pod's network namespace, each with its purpose.
const SYSCTLS: &[(&str, &str)] = &[
    // Pods share a link but send through the node, where Services are translated.
    ("ipv4/conf/all/accept_redirects", "0"),
    ("ipv4/conf/default/accept_redirects", "0"),
    // As containerd: containers without root may listen on port 80 and send pings.
    ("ipv4/ip_unprivileged_port_start", "0"),
    ("ipv4/ping_group_range", "0 2147483647"),
];

/// The input of a Pod's sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Directory of its pins.
    pub(crate) dir: PathBuf,
    pub(crate) uid: String,
    pub(crate) hostname: String,
    pub(crate) ip: Ipv4Addr,
    pub(crate) gateway: Ipv4Addr,
    /// Its interface on the node, and the bridge that it joins.
    pub(crate) veth: String,
    pub(crate) bridge: String,
    /// The node's id of its root, if it has a user namespace.
    pub(crate) first_id: Option<u32>,
}

impl Plan {
    /// The sandbox as runtimes take it.
    pub(crate) fn sandbox(&self) -> Sandbox {
        let pin = |kind: &str| Some(self.dir.join(kind));
        let user = self.first_id.map(|first_id| UserNamespace { path: self.dir.join(USER), first_id });
        Sandbox { network: pin("net"), ipc: pin("ipc"), uts: pin("uts"), user, hostname: self.hostname.clone() }
    }

    /// Whether the sandbox is complete.
    pub(crate) fn is_built(&self) -> Result<bool, NetworkError> {
        let has_user = is_pinned(&self.dir.join(USER));
        if !KINDS.iter().all(|kind| is_pinned(&self.dir.join(kind))) || has_user != self.first_id.is_some() {
            return Ok(false);
        }
        let mut socket = Socket::open()?;
        let (bridge, veth) = (socket.link(&self.bridge)?, socket.link(&self.veth)?);
        Ok(bridge.is_some_and(|bridge| veth.is_some_and(|veth| veth.controller == Some(bridge.index))))
    }

    /// Builds the sandbox. Moves the calling thread into the new namespaces: the thread must end afterwards. The rest of an
    /// earlier attempt is removed first.
    pub(crate) fn build(&self, proc_mount: &ProcMount) -> Result<(), NetworkError> {
        let mut host = Socket::open()?;
        remove(&self.dir, Some(&self.veth))?;
        let bridge = host.link(&self.bridge)?.ok_or(NetworkError::NoPodCidr)?;
        fs::create_dir_all(&self.dir).map_err(NetworkError::io(format!("making {}", self.dir.display())))?;
        let system = |doing: &str| {
            let doing = format!("{doing} of pod {}", self.uid);
            move |errno: Errno| NetworkError::Kernel { doing, source: errno.into() }
        };
        let kinds = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
        match self.first_id {
            Some(first_id) => self.pin_owned(first_id, kinds)?,
            None => {
                unshare(kinds).map_err(system("making the namespaces"))?;
                KINDS.iter().try_for_each(|kind| pin(Path::new(&format!("/proc/thread-self/ns/{kind}")), &self.dir.join(kind)))?;
            }
        }
        nix::unistd::sethostname(&self.hostname).map_err(system("setting the hostname"))?;
        proc_mount.write(SYSCTLS)?;
        let own = File::open(self.dir.join("net")).map_err(NetworkError::io(format!("opening the namespace of pod {}", self.uid)))?;
        let mut requests =
            vec![message::add_veth(&self.veth, INSIDE, own.as_fd(), self.ip, bridge.mtu), message::without_ipv6_addresses(&self.veth)];
        requests.push(message::attach(&self.veth, bridge.index, &self.uid));
        host.apply(requests)?;
        let gone = || NetworkError::kernel(format!("finding {} of pod {}", self.veth, self.uid))(io::ErrorKind::NotFound.into());
        let outside = host.link(&self.veth)?.ok_or_else(gone)?.index;
        host.apply(message::port(&self.veth, outside, bridge.index, self.ip).into())?;
        self.configure_inside()?;
        // The first datagram to the Pod must not be lost: nobody sends it again.
        host.await_operational(&self.veth)
    }

    /// Creates and pins a user namespace and those that it owns. The thread enters the latter.
    fn pin_owned(&self, first_id: u32, kinds: CloneFlags) -> Result<(), NetworkError> {
        let making = || format!("making the user namespace of pod {}", self.uid);
        let failed = |error: UserNamespaceError| NetworkError::kernel(making())(io::Error::other(RuntimeError::from(error)));
        let owned = Owned::make(first_id, kinds).map_err(failed)?;
        KINDS.iter().chain([&USER]).try_for_each(|kind| pin(&owned.namespace(kind), &self.dir.join(kind)))?;
        for kind in KINDS {
            let namespace = File::open(self.dir.join(kind)).map_err(NetworkError::io(making()))?;
            setns(namespace, CloneFlags::empty()).map_err(|errno| NetworkError::kernel(making())(errno.into()))?;
        }
        Ok(())
    }

    /// Addresses and routes inside. The address has no range on the link: every packet goes to the node, which routes it and
    /// translates Services in both directions.
    fn configure_inside(&self) -> Result<(), NetworkError> {
        let mut own = Socket::open()?;
        let missing = || NetworkError::kernel(format!("finding {INSIDE} of pod {}", self.uid))(io::ErrorKind::NotFound.into());
        let inside = own.link(INSIDE)?.ok_or_else(missing)?.index;
        let requests: Vec<Request> = vec![
            // No addresses that the node did not allocate. No router answers on the link: the guard lets no IPv6 pass.
            message::without_ipv6_addresses(INSIDE),
            message::up("lo"),
            message::up(INSIDE),
            message::add_address(inside, self.ip, Ipv4Net::from(self.ip).prefix_len()),
            // No other machine can answer for the node.
            message::set_neighbour(inside, self.gateway, self.gateway),
            message::set_route(Ipv4Net::default(), Target::OnLink(self.gateway, inside), 0),
        ];
        own.apply(requests)?;
        own.await_operational(INSIDE)
    }
}

/// Creates and pins an IPC namespace alone, unless it exists. Moves the calling thread into it.
pub(crate) fn build_ipc(uid: &str, dir: &Path) -> Result<PathBuf, NetworkError> {
    let path = dir.join("ipc");
    if is_pinned(&path) {
        return Ok(path);
    }
    fs::create_dir_all(dir).map_err(NetworkError::io(format!("making {}", dir.display())))?;
    let failed = |errno: Errno| NetworkError::kernel(format!("making the IPC namespace of pod {uid}"))(errno.into());
    unshare(CloneFlags::CLONE_NEWIPC).map_err(failed)?;
    pin(Path::new("/proc/thread-self/ns/ipc"), &path)?;
    Ok(path)
}

fn is_pinned(path: &Path) -> bool {
    statfs(path).is_ok_and(|stat| stat.filesystem_type() == NSFS)
}

/// Mounts a namespace on a file.
fn pin(namespace: &Path, path: &Path) -> Result<(), NetworkError> {
    File::create(path).map_err(NetworkError::io(format!("making {}", path.display())))?;
    mount(Some(namespace), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .map_err(|errno| NetworkError::io(format!("pinning a namespace as {}", path.display()))(errno.into()))
}

/// Removes the pins in `dir` and the Pod's interface on the node, as far as they exist.
pub(crate) fn remove(dir: &Path, veth: Option<&str>) -> Result<(), NetworkError> {
    for kind in KINDS.iter().chain([&USER]) {
        let path = dir.join(kind);
        unmount(&path)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(NetworkError::io(format!("removing {}", path.display()))(error));
            }
            _ => {}
        }
    }
    match fs::remove_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(NetworkError::io(format!("removing {}", dir.display()))(error));
        }
        _ => {}
    }
    match veth {
        Some(veth) => Socket::open()?.apply(vec![message::delete_link(veth)]),
        None => Ok(()),
    }
}

/// Removes every mount on a path.
fn unmount(path: &Path) -> Result<(), NetworkError> {
    loop {
        match umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) => {}
            // Not mounted (any more), or it does not exist.
            Err(Errno::EINVAL | Errno::ENOENT) => return Ok(()),
            Err(errno) => return Err(NetworkError::io(format!("unmounting {}", path.display()))(errno.into())),
        }
    }
}

/// Creates the directory of all pins, a private mount of its own.
pub(crate) fn prepare_dir(dir: &Path) -> Result<(), NetworkError> {
    private_dir(dir).map_err(NetworkError::io(format!("making {}", dir.display())))?;
    let failed = |errno: Errno| NetworkError::io(format!("making {} a private mount", dir.display()))(errno.into());
    match mount(None::<&str>, dir, None::<&str>, MsFlags::MS_PRIVATE, None::<&str>) {
        // Not a mount yet.
        Err(Errno::EINVAL) => {
            mount(Some(dir), dir, None::<&str>, MsFlags::MS_BIND, None::<&str>).map_err(failed)?;
            mount(None::<&str>, dir, None::<&str>, MsFlags::MS_PRIVATE, None::<&str>).map_err(failed)
        }
        other => other.map_err(failed),
    }
}

/// Undoes [`prepare_dir`], with all pins that are left.
pub(crate) fn remove_dir(dir: &Path) -> Result<(), NetworkError> {
    for uid in pinned(dir)? {
        remove(&dir.join(uid), None)?;
    }
    unmount(dir)?;
    match fs::remove_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(NetworkError::io(format!("removing {}", dir.display()))(error)),
        _ => Ok(()),
    }
}

/// The UIDs of all sandboxes, also incomplete ones.
pub(crate) fn pinned(dir: &Path) -> Result<Vec<String>, NetworkError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(NetworkError::io(format!("listing {}", dir.display())))?,
    };
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
}

/// Runs `work` on a thread of its own, because it changes the thread's namespaces.
pub(crate) async fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NetworkError> + Send + 'static,
) -> Result<T, NetworkError> {
    let (send, receive) = tokio::sync::oneshot::channel();
    let spawned = std::thread::Builder::new().name("sandbox".to_owned()).spawn(move || {
        // The caller may have gone; the state on disk counts.
        drop(send.send(work()));
    });
    spawned.map_err(NetworkError::io("starting a thread"))?;
    let died = |_| NetworkError::kernel("working in a namespace")(io::Error::from_raw_os_error(libc::ECANCELED));
    receive.await.map_err(died)?
}
