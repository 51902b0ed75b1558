//! Gives up every privilege that the work does not need, permanently.

use std::io;
use std::path::Path;

use caps::{Capability, CapsHashSet};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::chdir;

use super::{Bounds, Rights, syscalls};
use crate::confine;
use crate::process::Pidfd;

/// The user of work without privileges.
const NOBODY: u32 = 65_534;
/// The highest number of open files.
const OPEN_FILES_MAX: u64 = 64;
/// Address space beyond the writable memory: the program's own code, stacks, what allocators reserve.
const ADDRESSES_BYTES: u64 = 64 << 30;

/// A step and the kernel's error.
type Failure = (&'static str, io::Error);

fn doing<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Failure {
    move |error| (step, error.into())
}

/// Enters the root, sets the limits, drops capabilities and user, and finally sets the list of system calls.
pub(super) fn give_up_rights(rights: Rights, root: &Path, bounds: &Bounds, parent: &Pidfd) -> Result<(), Failure> {
    enter(rights, root)?;
    limit(bounds).map_err(doing("setting resource limits"))?;
    drop_capabilities(rights)?;
    end_with(parent).map_err(doing("ending with its parent"))?;
    syscalls::allow(rights).map_err(doing("limiting system calls"))
}

/// Makes the kernel end this process with its parent. It is set last, because the kernel clears it when the user changes; the
/// parent's handle tells whether the parent ended before.
fn end_with(parent: &Pidfd) -> io::Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    match parent.ended_within(0)? {
        true => Err(io::ErrorKind::BrokenPipe.into()),
        false => Ok(()),
    }
}

/// Leaves the node's file system: below the new root is the directory to work in, or nothing.
fn enter(rights: Rights, root: &Path) -> Result<(), Failure> {
    let step = "entering a root of its own";
    confine::make_mounts_private().map_err(doing(step))?;
    match rights {
        Rights::Files => confine::mount_itself(root).map_err(doing(step))?,
        Rights::Memory => confine::mount_empty(root, &[]).map_err(doing(step))?,
    }
    chdir(root).map_err(doing(step))?;
    confine::enter_working_dir().map_err(doing(step))
}

fn limit(bounds: &Bounds) -> nix::Result<()> {
    let cpu = bounds.cpu.as_secs().max(1);
    let limits = [
        (Resource::RLIMIT_CORE, 0),
        // Heap and private mappings; a machine without cgroups has this alone.
        (Resource::RLIMIT_DATA, bounds.memory_bytes),
        (Resource::RLIMIT_AS, bounds.memory_bytes.saturating_add(ADDRESSES_BYTES)),
        (Resource::RLIMIT_CPU, cpu),
        (Resource::RLIMIT_FSIZE, bounds.file_bytes),
        (Resource::RLIMIT_NOFILE, OPEN_FILES_MAX),
        (Resource::RLIMIT_MEMLOCK, 0),
    ];
    limits.into_iter().try_for_each(|(resource, limit)| setrlimit(resource, limit, limit))
}

/// The capabilities for creating files of any owner; no device files, no trusted extended attributes.
fn capabilities(rights: Rights) -> CapsHashSet {
    match rights {
        Rights::Files => CapsHashSet::from([
            Capability::CAP_CHOWN,
            Capability::CAP_DAC_OVERRIDE,
            Capability::CAP_FOWNER,
            Capability::CAP_FSETID,
            Capability::CAP_SETFCAP,
        ]),
        Rights::Memory => CapsHashSet::new(),
    }
}

fn drop_capabilities(rights: Rights) -> Result<(), Failure> {
    let id = (rights == Rights::Memory).then_some(NOBODY);
    confine::drop_privileges(&capabilities(rights), id).map_err(doing("dropping capabilities"))
}
