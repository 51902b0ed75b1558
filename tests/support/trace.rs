//! What a node leaves on a machine: looked at before and after a story, and compared.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::net::Net;
use crate::run::run;

/// Everything that `skiff down` has to take away again.
#[derive(Debug, PartialEq, Eq)]
pub struct Trace {
    links: BTreeSet<String>,
    routes: BTreeSet<String>,
    rules: String,
    named_namespaces: BTreeSet<String>,
    mounts: BTreeSet<String>,
    cgroups: BTreeSet<String>,
    shims: BTreeSet<String>,
}

impl Trace {
    /// What is there now, in a namespace and on the machine.
    pub fn of(net: &Net) -> Self {
        let lines = |text: String| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
        let links =
            lines(net.run("ip", &["-o", "link"]).ok()).iter().filter_map(|line| line.split(": ").nth(1).map(str::to_owned)).collect();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        Self {
            links,
            routes: lines(net.run("ip", &["route", "show", "table", "all"]).ok()),
            rules: net.run("nft", &["list", "ruleset"]).ok(),
            named_namespaces: lines(run(Command::new("ip").args(["netns", "list"]), None).ok()),
            mounts: mounts.lines().filter_map(|line| line.split(' ').nth(4)).filter(|at| at.contains("skiff")).map(str::to_owned).collect(),
            cgroups: cgroups(),
            shims: shims(),
        }
    }
}

/// Cgroup directories of ours, in every hierarchy.
fn cgroups() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies =
        std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path().join("skiff")).chain([root.join("skiff")]);
    for group in hierarchies.filter(|path| path.is_dir()) {
        for cluster in std::fs::read_dir(&group).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
            found.insert(cluster.path().display().to_string());
        }
    }
    found
}

/// Shims that run.
fn shims() -> BTreeSet<String> {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    processes
        .filter_map(|entry| {
            let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
            name.starts_with("skiff-shim").then(|| entry.file_name().to_string_lossy().into_owned())
        })
        .collect()
}
