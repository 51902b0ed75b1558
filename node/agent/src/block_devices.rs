//! The names of block devices, as cAdvisor has them in the label `device`.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::sys::stat::{major, minor};

/// The name of the device with these numbers, such as `/dev/vda1`; `None` when the kernel has no such device.
pub(crate) fn name(major: u64, minor: u64) -> Option<String> {
    device_name(&fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).ok()?)
}

/// The name of the device of the file system that a path is on. `None` for a file system without one device, such as Btrfs or tmpfs.
pub(crate) fn of_file_system(path: &Path) -> Option<String> {
    let device = path.ancestors().find_map(|at| fs::metadata(at).ok())?.dev();
    name(major(device), minor(device))
}

fn device_name(uevent: &str) -> Option<String> {
    uevent.lines().find_map(|line| line.strip_prefix("DEVNAME=")).map(|name| format!("/dev/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_names_devices() {
        let uevent = "MAJOR=253\nMINOR=1\nDEVNAME=vda1\nDEVTYPE=partition\n";
        assert_eq!(device_name(uevent).as_deref(), Some("/dev/vda1"));
        assert_eq!(device_name("MAJOR=0\n"), None);
        assert_eq!(name(0, 4_000_000), None);
        assert_eq!(of_file_system(Path::new("/proc/self")), None);
    }
}
