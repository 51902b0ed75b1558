//! The files of a virtual machine for tests: Debian's kernel (unpacked, not installed), and an initial file system in
//! memory. The latter mounts the host's root read-only, or a disk with a fresh Debian, and continues there. The files
//! are made once and kept under target/.

mod debian;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use crate::sh;

/// The package that depends on Debian's current kernel.
const KERNEL: &str = "linux-image-amd64";
/// The modules that the initial file system needs to mount the host's root, or a disk.
const MODULES: [&str; 6] = ["virtio_pci", "9pnet_virtio", "9p", "virtio_blk", "crc32c_generic", "ext4"];
/// The first process of the machine.
const INIT: &str = include_str!("machine/init.sh");
/// The script that runs a test's commands in a machine.
const COMMANDS: &str = include_str!("machine/commands.sh");

/// Makes the files; returns the directory with `vmlinuz`, `initramfs`, `lib/modules`, `commands.sh` and `debian.img`.
pub fn machine() -> Result<PathBuf> {
    super::ensure(&[&[
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("busybox", "busybox-static"),
        ("cpio", "cpio"),
        ("mkfs.ext4", "e2fsprogs"),
        ("mkfs.xfs", "xfsprogs"),
        ("depmod", "kmod"),
        ("mmdebstrap", "mmdebstrap"),
        ("/sbin/apparmor_parser", "apparmor"),
    ]])?;
    let dir = sh::target().join("machine");
    let (stamp, wanted) = (dir.join("made"), format!("{MODULES:?}\n{INIT}\n{COMMANDS}"));
    if !std::fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
        kernel_and_initramfs(&dir)?;
        std::fs::write(&stamp, wanted).with_context(|| format!("writing {}", stamp.display()))?;
    }
    debian::debian(&dir)?;
    Ok(dir)
}

fn kernel_and_initramfs(dir: &Path) -> Result<()> {
    if dir.exists() {
        std::fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let version = kernel(dir)?;
    initramfs(dir, &version)?;
    Ok(std::fs::write(dir.join("commands.sh"), COMMANDS)?)
}

/// Fetches and unpacks the kernel; returns its version.
fn kernel(dir: &Path) -> Result<String> {
    super::refresh()?;
    let depends = sh::output(&mut sh::command("apt-cache", ["depends", KERNEL]))?;
    let package =
        depends.lines().find_map(|line| line.trim().strip_prefix("Depends: ")).context("no kernel is offered by this system's packages")?;
    sh::say(&format!("fetching {package}"));
    sh::run(sh::command("apt-get", ["download", "-qq", package]).current_dir(dir).stderr(Stdio::null()))?;
    let file = entry(dir, ".deb")?;
    sh::run(sh::command("dpkg-deb", ["-x"]).arg(&file).arg(dir))?;
    std::fs::remove_file(&file)?;
    let modules = entry(&dir.join("lib/modules"), "")?;
    let version = modules.file_name().and_then(|name| name.to_str()).context("a kernel's version")?.to_owned();
    std::fs::rename(dir.join(format!("boot/vmlinuz-{version}")), dir.join("vmlinuz"))?;
    sh::run(sh::command("depmod", ["-b"]).arg(dir).arg(&version))?;
    Ok(version)
}

/// Makes the initial file system: busybox, the modules in their loading order, and the first process.
fn initramfs(dir: &Path, version: &str) -> Result<()> {
    let root = dir.join("root");
    for sub in ["bin", "dev", "proc", "root", "modules"] {
        std::fs::create_dir_all(root.join(sub))?;
    }
    std::fs::copy("/bin/busybox", root.join("bin/busybox")).context("busybox-static")?;
    let mut order = Vec::new();
    for module in MODULES {
        let listed = sh::output(sh::command("modprobe", ["-S", version, "--show-depends", module, "-d"]).arg(dir))?;
        for file in listed.lines().filter_map(|line| line.strip_prefix("insmod ")) {
            let name = Path::new(file.trim()).file_name().context("a module's file")?.to_string_lossy().into_owned();
            if !order.contains(&name) {
                std::fs::copy(file.trim(), root.join("modules").join(&name))?;
                order.push(name);
            }
        }
    }
    std::fs::write(root.join("modules/order"), order.join("\n") + "\n")?;
    std::fs::write(root.join("init"), INIT)?;
    let pack = "chmod 755 init bin/busybox && find . | cpio --quiet -o -H newc | gzip -1 > ../initramfs";
    sh::run(sh::command("sh", ["-c", pack]).current_dir(&root))?;
    std::fs::remove_dir_all(&root)?;
    Ok(())
}

/// The only entry of a directory whose name has that suffix.
fn entry(dir: &Path, suffix: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("listing {}", dir.display()))?;
    let mut found: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.to_string_lossy().ends_with(suffix)).collect();
    ensure!(found.len() == 1, "{} holds {found:?}", dir.display());
    found.pop().context("checked")
}
