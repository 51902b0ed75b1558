//! A mount of procfs through which the sysctls of Pods are written. For each sysctl of each network namespace that was looked up in a
//! mount, the kernel keeps an entry there, all of one sysctl under one name, and a lookup passes all of them. With thousands of Pods this
//! is most of the work for a Pod's network. So the mount is replaced after some Pods. The sysctls that a Pod's spec has are still written
//! through the machine's `/proc`.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use parking_lot::Mutex;
use runtimes_host::mounts::detached_proc;

use crate::NetworkError;

/// The Pods whose sysctls are written through one mount.
const PODS_MAX: usize = 64;

/// The present mount.
#[derive(Default)]
pub(crate) struct ProcMount(Mutex<Option<(Arc<OwnedFd>, usize)>>);

impl ProcMount {
    /// Writes sysctls of the network namespace of the calling thread, which is a Pod's. Those that the kernel does not have are skipped.
    pub(crate) fn write(&self, sysctls: &[(&str, &str)]) -> Result<(), NetworkError> {
        let mount = self.of_pod().map_err(NetworkError::io("mounting procfs"))?;
        sysctls.iter().try_for_each(|(name, value)| write_sysctl(&mount, name, value))
    }

    /// The mount for one more Pod.
    fn of_pod(&self) -> io::Result<Arc<OwnedFd>> {
        let mut present = self.0.lock();
        match &mut *present {
            Some((mount, pods)) if *pods < PODS_MAX => {
                *pods += 1;
                Ok(Arc::clone(mount))
            }
            replaced => {
                let mount = Arc::new(detached_proc()?);
                *replaced = Some((Arc::clone(&mount), 1));
                Ok(mount)
            }
        }
    }
}

/// Writes a sysctl of the network namespace of the calling thread through a mount of procfs, if the kernel has it.
pub(crate) fn write_sysctl(procfs: impl AsFd, name: &str, value: &str) -> Result<(), NetworkError> {
    let path = format!("sys/net/{name}");
    let file = openat(procfs, path.as_str(), OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty()).map_err(io::Error::from);
    match file.and_then(|file| File::from(file).write_all(value.as_bytes())) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(NetworkError::io(format!("writing {value} to /proc/{path}"))(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use nix::sched::{CloneFlags, unshare};

    use super::*;

    #[test]
    fn the_sysctls_of_the_thread_are_written_and_the_mount_is_replaced() {
        let mount = Arc::new(ProcMount::default());
        let used = (0..PODS_MAX * 2).map(|_| mount.of_pod().expect("a mount").as_raw_fd()).collect::<Vec<_>>();
        assert!(used.windows(2).filter(|pair| pair[0] != pair[1]).count() == 1, "{used:?}");
        let read = || std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").map_err(|error| error.to_string());
        let before = read();
        let written = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            mount.write(&[("ipv4/ip_unprivileged_port_start", "7"), ("ipv4/of_no_kernel", "1")]).expect("written");
            let refused = mount.write(&[("ipv4/ip_unprivileged_port_start", "x")]).expect_err("no number").to_string();
            (read(), refused)
        });
        let (after, refused) = written.join().expect("an answer");
        assert_eq!(after.as_deref(), Ok("7\n"));
        assert!(refused.contains("writing x to /proc/sys/net/ipv4/ip_unprivileged_port_start"), "{refused}");
        assert_eq!(read(), before, "the machine's own");
    }
}
