//! Network namespaces of a story, and links between them.

use std::fs::File;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use crate::run::{Ran, run};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A network namespace with loopback and one address; removed when dropped.
pub struct Net {
    /// The name, for `ip netns`.
    pub name: String,
    /// Its address.
    pub ip: String,
    /// Whether dropping this value removes the namespace.
    owned: bool,
}

impl Net {
    /// A namespace whose default route leads to a bridge without ports: packets go nowhere.
    pub fn alone() -> Self {
        let net = Self::bare("192.168.77.2");
        net.ip_ok(&["link", "add", "uplink", "type", "bridge"]);
        net.ip_ok(&["addr", "add", "192.168.77.2/24", "dev", "uplink"]);
        // The bridge gets no IPv6 address of its own, because that address would come only after some time.
        net.ip_ok(&["link", "set", "uplink", "addrgenmode", "none"]);
        net.ip_ok(&["link", "set", "uplink", "up"]);
        net.ip_ok(&["route", "add", "default", "via", "192.168.77.1"]);
        net
    }

    /// That many namespaces on one switch, with the addresses `192.168.78.1` and up. The switch is in its own
    /// namespace, which is the last item of the result.
    pub fn joined(count: u8) -> Vec<Self> {
        let switch = Self::bare("");
        switch.ip_ok(&["link", "add", "switch", "type", "bridge"]);
        switch.ip_ok(&["link", "set", "switch", "up"]);
        let mut nets = Vec::new();
        for n in 1..=count {
            let net = Self::bare(&format!("192.168.78.{n}"));
            let port = format!("port{n}");
            net.ip_ok(&["link", "add", "uplink", "type", "veth", "peer", "name", &port, "netns", &switch.name]);
            switch.ip_ok(&["link", "set", &port, "master", "switch", "up"]);
            net.ip_ok(&["addr", "add", &format!("192.168.78.{n}/24"), "dev", "uplink"]);
            net.ip_ok(&["link", "set", "uplink", "up"]);
            net.ip_ok(&["route", "add", "default", "via", "192.168.78.254"]);
            nets.push(net);
        }
        nets.push(switch);
        nets
    }

    /// A namespace behind a new bridge in the caller's own namespace, as that of a Pod is. The bridge stays until the caller's namespace is
    /// removed, so there can be one.
    pub fn behind_bridge() -> Self {
        let net = Self::bare("192.168.79.2");
        let here = |args: &[&str]| drop(run(Command::new("ip").args(args), None).ok());
        here(&["link", "add", "beside", "type", "bridge"]);
        here(&["addr", "add", "192.168.79.1/24", "dev", "beside"]);
        here(&["link", "set", "beside", "addrgenmode", "none"]);
        here(&["link", "set", "beside", "up"]);
        here(&["link", "add", "beside1", "type", "veth", "peer", "name", "uplink", "netns", &net.name]);
        here(&["link", "set", "beside1", "master", "beside", "up"]);
        net.ip_ok(&["addr", "add", "192.168.79.2/24", "dev", "uplink"]);
        net.ip_ok(&["link", "set", "uplink", "up"]);
        net
    }

    fn bare(ip: &str) -> Self {
        let name = format!("skit-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        run(Command::new("ip").args(["netns", "add", &name]), None).ok();
        let net = Self { name, ip: ip.to_owned(), owned: true };
        net.ip_ok(&["link", "set", "lo", "up"]);
        net
    }

    /// A second value for the same namespace, for a second cluster in it. Drop it before the first value.
    pub fn shared(&self) -> Self {
        Self { name: self.name.clone(), ip: self.ip.clone(), owned: false }
    }

    /// A command that runs in the namespace, but in the mount namespace of the test. So a cluster's mounts are still
    /// present when the cluster starts again.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).arg("--").arg(program);
        command
    }

    /// Runs the test's code on its own thread in the namespace. Threads that this thread starts are in the namespace
    /// too.
    pub fn enter<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let namespace = File::open(format!("/run/netns/{}", self.name)).expect("the namespace is there");
        std::thread::spawn(move || {
            nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).expect("root may enter");
            work()
        })
    }

    /// Runs a program in the namespace.
    #[track_caller]
    pub fn run(&self, program: &str, args: &[&str]) -> Ran {
        run(self.command(program).args(args), None)
    }

    /// Takes the namespace's link to the others down or up again.
    pub fn set_uplink(&self, up: bool) {
        self.ip_ok(&["link", "set", "uplink", if up { "up" } else { "down" }]);
        if up {
            self.ip_ok(&["route", "replace", "default", "via", "192.168.78.254"]);
        }
    }

    fn ip_ok(&self, args: &[&str]) {
        self.run("ip", args).ok();
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        let removed = run(Command::new("ip").args(["netns", "del", &self.name]), None);
        if !removed.succeeded() {
            eprintln!("{removed}");
        }
    }
}
