//! The records in the state directory. The directory is open only until the pid record is written. After that only the exit
//! file is open, which was opened as root, and the exit record is one write to it.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg, OFlag, openat, renameat};
use nix::sys::stat::Mode;
use runtimes_contract::Exit;
use runtimes_host::mounts::detached_at;
use runtimes_host::process::ProcessRef;
use runtimes_shim::launch::Refusal;
use runtimes_shim::record::{PidRecord, encode_exit, now_ms};

use super::Failure;

/// A container that is ours to run; nothing is written yet.
pub struct Claim {
    dir: OwnedFd,
    process: ProcessRef,
    records: Records,
}

/// The open records of this container.
pub struct Records {
    exit: File,
    /// Locked as long as this process lives: a second shim for this container gives up.
    _lock: Flock<File>,
}

impl Claim {
    /// Opens the files; fails when another shim has this container.
    pub fn open(dir: &Path) -> Result<Self, Failure> {
        let opening = || format!("opening {}", dir.display());
        let file = |name: &str| {
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(dir.join(name)).map_err(Failure::io(opening()))
        };
        let lock = Flock::lock(file("lock")?, FlockArg::LockExclusiveNonblock)
            .map_err(|_| Failure::new(Refusal::Start, "the container is already running"))?;
        // Nothing is above it: it is open while the compiled file is mapped, which is checked by its hash alone.
        let directory = detached_at(dir, false).map_err(Failure::io(opening()))?;
        // The new root will have no /proc.
        let process = ProcessRef::current().map_err(Failure::io("reading /proc/self/stat"))?;
        Ok(Self { dir: directory, process, records: Records { exit: file("exit")?, _lock: lock } })
    }

    /// Writes the pid record atomically, and closes the directory.
    pub fn write_pid(self) -> Result<Records, Failure> {
        let record = PidRecord { shim: self.process.clone(), init: self.process, started_at_ms: now_ms() };
        let writing = "writing the pid record";
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_CLOEXEC;
        let fresh = openat(self.dir.as_fd(), "pid.new", flags, Mode::S_IRUSR | Mode::S_IWUSR).map_err(Failure::io(writing))?;
        File::from(fresh).write_all(record.encode().as_bytes()).map_err(Failure::io(writing))?;
        renameat(self.dir.as_fd(), "pid.new", self.dir.as_fd(), "pid").map_err(Failure::io(writing))?;
        Ok(self.records)
    }
}

impl Records {
    /// Writes the exit record. One write of less than a page: it is complete or missing.
    pub fn write_exit(&self, exit: &Exit) {
        // If it cannot be written, the end is taken for a kill; there is no other way to report it.
        let _written = self.exit.write_all_at(encode_exit(exit).as_bytes(), 0);
    }
}
