//! A block device over a file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::run;

/// A loop device, which is detached when dropped.
pub struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    /// Over a new file of that size.
    pub fn over(file: &Path, bytes: u64) -> Self {
        File::create_new(file).and_then(|file| file.set_len(bytes)).expect("a file");
        let printed = run(Command::new("losetup").args(["--find", "--show"]).arg(file), None).ok();
        Self { path: printed.trim().into() }
    }

    /// The device.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detached = run(Command::new("losetup").arg("--detach").arg(&self.path), None);
        if !detached.succeeded() {
            eprintln!("{detached}");
        }
    }
}
