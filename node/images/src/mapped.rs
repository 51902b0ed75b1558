//! An overlay whose files have the ids of a user namespace. overlayfs itself has no mounts with other ids, but its layers may be such
//! mounts (Linux 5.19). The kernel takes layers by their paths, so that they are attached for a moment, in a mount namespace of a thread
//! that ends: the node never sees them, and nothing is left of them when this process is killed.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use runtimes_contract::UserNamespace;
use runtimes_host::mounts::{attach, detached_at, map_ids};

/// What is mounted.
pub(crate) struct Overlay<'a> {
    /// The directories of the layers for reading, the highest first. They have the node's ids.
    pub(crate) lower: &'a [String],
    /// The other options of the overlay, if it has any: the directories for writing.
    pub(crate) others: &'a str,
    /// Flags of the mount.
    pub(crate) flags: MsFlags,
    /// The user namespace.
    pub(crate) user: &'a UserNamespace,
}

/// Where the layers are attached below a directory, in their order.
pub(crate) fn places(below: &Path, count: usize) -> Vec<String> {
    (0..count).map(|number| below.join(number.to_string()).display().to_string()).collect()
}

impl Overlay<'_> {
    /// Mounts it at a directory. `below` is an empty directory for the layers.
    pub(crate) fn mount(&self, at: &Path, below: &Path) -> io::Result<()> {
        let died = |_| Err(io::Error::other("the thread that mounts has ended"));
        let tree = std::thread::scope(|scope| scope.spawn(|| self.mount_aside(at, below)).join().unwrap_or_else(died))?;
        attach(&tree, at)
    }

    /// Moves the calling thread to other mounts.
    fn mount_aside(&self, at: &Path, below: &Path) -> io::Result<OwnedFd> {
        let (none, private) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_SLAVE);
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(none, "/", none, private, none)?;
        mount(Some("tmpfs"), below, Some("tmpfs"), MsFlags::empty(), Some("mode=700,size=1m"))?;
        let namespace = File::open(&self.user.path)?;
        let places = places(below, self.lower.len());
        for (layer, target) in self.lower.iter().zip(&places) {
            let (layer, target) = (Path::new(layer), Path::new(target));
            let tree = detached_at(layer, false)?;
            map_ids(&tree, &namespace, layer).map_err(io::Error::other)?;
            fs::create_dir(target)?;
            attach(&tree, target)?;
        }
        let options = format!("lowerdir={}{}", places.join(":"), self.others);
        mount(Some("overlay"), at, Some("overlay"), self.flags, Some(options.as_str()))?;
        detached_at(at, false)
    }
}
