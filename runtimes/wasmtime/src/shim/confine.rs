//! Gives up every privilege: user, groups, capabilities, new privileges, most system calls. An AppArmor profile of the container is
//! entered just before the last two: what the shim has done until then, such as mounts and the change of its user, needs no rule of the
//! profile. After this a guest that has escaped wasmtime is the user nobody, can name no other process, and has an empty root and the
//! network of its Pod.

mod syscalls;

use std::io;

use caps::CapSet;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use runtimes_contract::ContainerSpec;
use runtimes_host::app_armor::ProfileChange;
use runtimes_shim::launch::Refusal;

use super::Failure;
use crate::user::node_ids;

/// The open files and sockets of one container.
const FILES_MAX: u64 = 65_536;

/// Sets the order in which the kernel kills when the machine's memory runs out. The new root will have no `/proc`.
pub fn take_oom_score(adj: i32) -> io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", adj.to_string())
}

/// The AppArmor profile of a container, which is entered later: the new root will have no `/proc`.
pub struct Profile {
    name: String,
    change: ProfileChange,
}

impl Profile {
    /// `None` for a container without one.
    pub fn open(spec: &ContainerSpec) -> Result<Option<Self>, Failure> {
        let Some(name) = spec.security.app_armor.clone() else { return Ok(None) };
        let change = ProfileChange::open().map_err(Failure::io("opening the file of this process' AppArmor profile"))?;
        Ok(Some(Self { name, change }))
    }

    /// Nothing runs without the profile that it must have.
    fn enter(self) -> Result<(), Failure> {
        let Self { name, change } = self;
        change.change_to(&name).map_err(|error| Failure::new(Refusal::Start, format!("apparmor failed to apply profile {name}: {error}")))
    }
}

/// Switches to the spec's user, or to the one of a spec without a user, and enters the profile, permanently. The process has one thread.
pub fn drop_privileges(spec: &ContainerSpec, profile: Option<Profile>) -> Result<(), Failure> {
    let dropping = "giving up privileges";
    let user = node_ids(spec).map_err(Failure::io(dropping))?;
    caps::clear(None, CapSet::Bounding).map_err(Failure::io(dropping))?;
    limit_resources().map_err(Failure::io(dropping))?;
    // Errors were reported to the agent; output from now on has no reader and no limit. SAFETY: two descriptors that stay open;
    // nothing in this process owns the second.
    nix::errno::Errno::result(unsafe { libc::dup2(libc::STDOUT_FILENO, libc::STDERR_FILENO) }).map_err(Failure::io(dropping))?;
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups).map_err(Failure::io(dropping))?;
    // Both are set. The kernel has no user of the number that stands for none.
    let (uid, gid) = (Uid::from_raw(user.uid.unwrap_or(u32::MAX)), Gid::from_raw(user.gid.unwrap_or(u32::MAX)));
    setresgid(gid, gid, gid).map_err(Failure::io(dropping))?;
    setresuid(uid, uid, uid).map_err(Failure::io(dropping))?;
    for set in [CapSet::Ambient, CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
        caps::clear(None, set).map_err(Failure::io(dropping))?;
    }
    prctl::set_dumpable(false).map_err(Failure::io(dropping))?;
    // Before new privileges are given up: the kernel then lets only an unconfined process change its profile.
    profile.map_or(Ok(()), Profile::enter)?;
    prctl::set_no_new_privs().map_err(Failure::io(dropping))?;
    syscalls::filter()
}

/// The resources that the kernel counts for each user or process rather than for each cgroup.
fn limit_resources() -> nix::Result<()> {
    for none in [Resource::RLIMIT_CORE, Resource::RLIMIT_MEMLOCK, Resource::RLIMIT_MSGQUEUE] {
        setrlimit(none, 0, 0)?;
    }
    let (_, files_max) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let files_max = files_max.min(FILES_MAX);
    setrlimit(Resource::RLIMIT_NOFILE, files_max, files_max)
}
