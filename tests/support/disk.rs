//! A small disk that a story can fill.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::run;

/// Name of the file that fills the disk.
const BALLAST: &str = "ballast";

/// A tmpfs of limited size, mounted on a directory; unmounted when dropped.
pub struct Disk {
    at: PathBuf,
}

impl Disk {
    /// Mounts a disk of that size on a directory.
    pub fn mounted(at: &Path, megabytes: u32) -> Self {
        let size = format!("size={megabytes}m,mode=0755");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "skiff-it"]).arg(at), None).ok();
        Self { at: at.to_owned() }
    }

    /// Fills the disk. A second call fills the space that has become free since.
    pub fn fill(&self) {
        let mut ballast = File::options().create(true).append(true).open(self.at.join(BALLAST)).expect("a file");
        for piece in [1 << 20, 64 << 10, 4 << 10, 1] {
            let zeros = vec![0; piece];
            let full = loop {
                match ballast.write_all(&zeros) {
                    Ok(()) => {}
                    Err(error) => break error,
                }
            };
            assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
        }
    }

    /// Lets the disk have that many files and directories.
    pub fn limit_inodes(&self, inodes: u32) {
        let options = format!("remount,nr_inodes={inodes}");
        run(Command::new("mount").args(["-o", &options]).arg(&self.at), None).ok();
    }

    /// Fills the disk up to that share.
    pub fn fill_to_percent(&self, percent: u64) {
        let disk = nix::sys::statvfs::statvfs(&self.at).expect("a disk");
        let (all, free) = (disk.blocks() * disk.fragment_size(), disk.blocks_free() * disk.fragment_size());
        let bytes = (all * percent / 100).saturating_sub(all - free);
        let ballast = vec![0; usize::try_from(bytes).expect("a size")];
        std::fs::write(self.at.join(BALLAST), ballast).expect("written");
    }

    /// Frees the space that was filled.
    pub fn make_room(&self) {
        std::fs::remove_file(self.at.join(BALLAST)).expect("it was filled");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmounted = run(Command::new("umount").arg(&self.at), None);
        if !unmounted.succeeded() {
            eprintln!("{unmounted}");
        }
    }
}
