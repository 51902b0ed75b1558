//! Reads the AppArmor profile of the calling thread, and puts the thread under one. The threads that it starts later are under it too. The kernel's file for it is in
//! `/proc`, so a process that leaves the node's mounts opens it before.

use std::fs::File;
use std::io::{self, Write as _};

/// The kernel's files, the second one of kernels before 5.8, which may belong to another security module.
const FILES: [&str; 2] = ["/proc/thread-self/attr/apparmor/current", "/proc/thread-self/attr/current"];

/// The profile of the calling thread, in the form `name (mode)`, or `unconfined`. `None` when the kernel does not say.
pub fn own_label() -> Option<String> {
    FILES.into_iter().find_map(|path| std::fs::read_to_string(path).ok())
}

/// The file by which a thread changes its profile. The kernel takes the request from the thread that has opened the file, and from no
/// other process.
#[derive(Debug)]
pub struct ProfileChange {
    file: File,
}

impl ProfileChange {
    /// For the calling thread alone.
    ///
    /// # Errors
    /// When `/proc` has no such file.
    pub fn open() -> io::Result<Self> {
        let open = |path: &str| File::options().write(true).open(path);
        let [file, older] = FILES;
        let file = open(file).or_else(|error| if error.kind() == io::ErrorKind::NotFound { open(older) } else { Err(error) })?;
        Ok(Self { file })
    }

    /// Changes the profile of the thread that opened the file. No later call leaves the profile, unless the profile allows it.
    ///
    /// # Errors
    /// When the profile is not loaded, or the present profile forbids the change.
    pub fn change_to(mut self, profile: &str) -> io::Result<()> {
        self.file.write_all(format!("changeprofile {profile}").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No machine has the profile: the kernel says so, or does not know the request, or has no security module at all.
    #[test]
    fn a_profile_that_is_not_loaded_is_an_error() {
        let changed = ProfileChange::open().and_then(|change| change.change_to("skiff-test-that-nobody-loads"));
        assert!(changed.is_err());
    }
}
