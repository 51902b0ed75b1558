//! How a shim enters its cgroup by itself, where the kernel lets a thread do that. [`launch`](crate::launch) names the files in the environment.
//! The shim opens them while it has the node's mounts, and enters when it continues.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};

use runtimes_host::cgroup::Group;

/// The variable of a shim's environment with the files, in the form of `PATH`.
pub(crate) const VARIABLE: &str = "SKIFF_CGROUPS";

/// The value of the variable; `None` when the shim has to be put into its cgroup.
pub(crate) fn files(group: &Group) -> Option<OsString> {
    let files = group.own_thread_files();
    env::join_paths(&files).ok().filter(|_| !files.is_empty())
}

/// The cgroups that this process enters by itself, if any.
pub struct OwnCgroups(Vec<File>);

impl OwnCgroups {
    /// Opens their files. Only root may.
    ///
    /// # Errors
    /// When one of them cannot be opened, for example because the container is being removed.
    pub fn open() -> io::Result<Self> {
        let files = env::var_os(VARIABLE).unwrap_or_default();
        let open = |file| File::options().write(true).open(file);
        env::split_paths(&files).filter(|file| !file.as_os_str().is_empty()).map(open).collect::<Result<_, _>>().map(Self)
    }

    /// Enters them. The process must have one thread.
    ///
    /// # Errors
    /// When the kernel refuses, for example because the container was removed.
    pub fn enter(self) -> io::Result<()> {
        self.0.into_iter().try_for_each(|mut file| file.write_all(b"0"))
    }
}
