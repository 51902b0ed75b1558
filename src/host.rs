//! Detects properties of this machine: its name, its address, and the programs beside this one.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::PathBuf;

use anyhow::{Context, bail};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit of open files to the maximum that the system allows, because each client is an open file. Most
/// systems start processes with a limit of 1,024, for programs that use `select`.
pub fn allow_open_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| match soft < hard {
        true => setrlimit(Resource::RLIMIT_NOFILE, hard, hard),
        false => Ok(()),
    });
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files could not be raised");
    }
}

/// When the machine's memory runs out, the kernel kills Pods before this process. The number is the kubelet's.
pub fn outlive_pods() {
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", "-999") {
        tracing::warn!(%error, "this process may be ended when a Pod uses up the machine's memory");
    }
}

/// New files without an explicit mode may be read by all and written by their owner, whatever the umask of the caller:
/// containers read some of them. Private files have an explicit mode, or are in a private directory.
pub fn set_umask() {
    nix::sys::stat::umask(nix::sys::stat::Mode::S_IWGRP | nix::sys::stat::Mode::S_IWOTH);
}

/// A node's name: the given one, or the hostname.
pub fn node_name(given: Option<&str>) -> anyhow::Result<String> {
    if let Some(name) = given {
        return Ok(name.to_lowercase());
    }
    let name = nix::unistd::gethostname().context("asking for the hostname")?;
    Ok(name.to_string_lossy().to_lowercase())
}

/// A node's address: the given one, or the source address of the default route.
pub fn node_ip(given: Option<IpAddr>) -> anyhow::Result<Ipv4Addr> {
    match given {
        Some(IpAddr::V4(ip)) => return Ok(ip),
        Some(IpAddr::V6(ip)) => bail!("--node-ip {ip}: only IPv4 addresses are supported"),
        None => {}
    }
    // Connecting a UDP socket sends no packet. It only selects the source address for packets to a documentation
    // address (RFC 5737).
    let local = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    });
    match local.map(|address| address.ip()) {
        Ok(IpAddr::V4(ip)) if !ip.is_unspecified() && !ip.is_loopback() => Ok(ip),
        _ => first_address().context("this machine has no default route and no address but loopback: give the node's address by --node-ip"),
    }
}

fn first_address() -> Option<Ipv4Addr> {
    let addresses = nix::ifaddrs::getifaddrs().ok()?;
    let v4 = addresses.filter_map(|interface| Some(interface.address?.as_sockaddr_in()?.ip()));
    v4.into_iter().find(|ip| !ip.is_loopback())
}

/// A program that is installed beside this one.
pub fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let here = std::env::current_exe().context("asking where this program is")?;
    let path = here.with_file_name(name);
    if path.exists() {
        return Ok(path);
    }
    bail!("{} is missing: it is built by `cargo xtask build` and belongs beside {}", path.display(), here.display())
}

/// Whether this process runs in a container, by the variable that containerd looks at. LXC, Podman, systemd-nspawn and Docker's script for
/// Docker in Docker give it to the first process of a container.
pub fn in_container() -> bool {
    std::env::var_os("container").is_some_and(|manager| !manager.is_empty())
}

/// A program on the PATH, or its bare name if it is not there: the caller's error then shows the name.
pub fn on_path(name: &str) -> PathBuf {
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&dirs).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")]).map(|dir| dir.join(name));
    candidates.find(|path| path.exists()).unwrap_or_else(|| PathBuf::from(name))
}
