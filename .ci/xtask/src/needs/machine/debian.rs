//! A disk image with a fresh Debian of this system's release: the packages that a machine needs to boot, and the
//! packages that docs/nodes.md names. mmdebstrap takes them from this system's package sources. The image is made once
//! and kept under target/.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::super::{CLIENT, NODE};
use crate::sh;

/// An init system, and packages that the kernel's package would bring.
const BOOT: [&str; 3] = ["systemd-sysv", "udev", "kmod"];
/// The test's own files, none of them from skiff: the connection to the test, and the network link.
const FILES: [(&str, &str); 4] = [
    ("usr/local/lib/commands.sh", super::COMMANDS),
    ("etc/systemd/system/commands.service", include_str!("commands.service")),
    ("etc/systemd/network/uplink.network", include_str!("uplink.network")),
    ("etc/hostname", "fresh\n"),
];
/// The units that start at boot, linked as `systemctl enable` does.
const ENABLED: [(&str, &str); 2] = [
    ("commands.service", "/etc/systemd/system/commands.service"),
    ("systemd-networkd.service", "/usr/lib/systemd/system/systemd-networkd.service"),
];
/// The size of the image, which is sparse.
const DISK_SIZE: &str = "6G";

/// mmdebstrap lets apt write to file descriptors that dash opens. dash supports only descriptors of one digit, so no
/// descriptor may be inherited.
const MMDEBSTRAP: &str = "exec mmdebstrap \"$@\" 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-";

/// Makes `debian.img` in the machine's directory, which has the kernel's modules.
pub fn debian(machine: &Path) -> Result<()> {
    let packages: Vec<&str> = BOOT.into_iter().chain(NODE.iter().chain(CLIENT).map(|(_, package)| *package)).collect();
    let packages = packages.join(",");
    let wanted = FILES.iter().fold(packages.clone(), |text, (path, content)| format!("{text}\n{path}\n{content}"));
    let (image, stamp) = (machine.join("debian.img"), machine.join("debian.made"));
    if fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
        return Ok(());
    }
    sh::say("making a fresh Debian; this takes a minute");
    let root = machine.join("debian");
    for old in [&root, &image] {
        remove(old)?;
    }
    let mut mmdebstrap = sh::command("sh", ["-c", MMDEBSTRAP, "mmdebstrap", "--quiet", "--variant=minbase", "--format=directory"]);
    mmdebstrap.arg(format!("--include={packages}")).args(apt_options()?).arg(release()?).arg(&root).args(sources()?);
    sh::run(&mut mmdebstrap)?;
    sh::run(sh::command("cp", ["-a"]).arg(machine.join("lib/modules")).arg(root.join("usr/lib/")))?;
    for (path, content) in FILES {
        fs::write(root.join(path), content).with_context(|| format!("writing {path}"))?;
    }
    let wants = root.join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wants)?;
    for (name, unit) in ENABLED {
        remove(&wants.join(name))?;
        std::os::unix::fs::symlink(unit, wants.join(name)).with_context(|| format!("enabling {name}"))?;
    }
    sh::run(sh::command("mke2fs", ["-q", "-t", "ext4", "-d"]).arg(&root).arg(&image).arg(DISK_SIZE))?;
    remove(&root)?;
    fs::write(&stamp, wanted).with_context(|| format!("writing {}", stamp.display()))
}

/// The code name of this system's release.
fn release() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("reading /etc/os-release")?;
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(name.context("/etc/os-release names no VERSION_CODENAME")?.trim_matches('"').to_owned())
}

/// The files of this system's package sources.
fn sources() -> Result<Vec<PathBuf>> {
    let dir = fs::read_dir("/etc/apt/sources.list.d").context("listing /etc/apt/sources.list.d")?;
    let mut files: Vec<PathBuf> = dir.flatten().map(|entry| entry.path()).collect();
    files.push(PathBuf::from("/etc/apt/sources.list"));
    files.retain(|path| path.extension().is_some_and(|end| end == "list" || end == "sources") && path.exists());
    Ok(files)
}

/// apt's HTTP settings of this system, such as a proxy.
fn apt_options() -> Result<Vec<String>> {
    let dump = sh::output(&mut sh::command("apt-config", ["dump", "Acquire"]))?;
    let set = |line: &&str| line.starts_with("Acquire::http") && !line.ends_with("\"\";");
    Ok(dump.lines().filter(set).map(|line| format!("--aptopt={line}")).collect())
}

fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).with_context(|| format!("removing {}", path.display())),
        _ => Ok(()),
    }
}
