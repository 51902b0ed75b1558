//! What a node leaves on a machine. A story compares the state before and after.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::net::Net;
use crate::run::run;

/// Everything that `skiff down` must remove.
#[derive(Debug, PartialEq, Eq)]
pub struct Trace {
    links: BTreeSet<String>,
    routes: BTreeSet<String>,
    rules: String,
    named_namespaces: BTreeSet<String>,
    mounts: BTreeSet<String>,
    cgroups: BTreeSet<String>,
    shims: BTreeSet<String>,
    run_dirs: BTreeSet<String>,
}

impl Trace {
    /// The present state: everything in a namespace, and everything on the machine whose name contains one of the marks
    /// (a data directory, a cluster's prefix). So other clusters on the machine do not count.
    pub fn take(net: &Net, marks: &[&str]) -> Self {
        let lines = |text: String| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
        let marked = |name: &str| marks.iter().any(|mark| name.contains(mark));
        let links =
            lines(net.run("ip", &["-o", "link"]).ok()).iter().filter_map(|line| line.split(": ").nth(1).map(str::to_owned)).collect();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        let mut named_namespaces = lines(run(Command::new("ip").args(["netns", "list"]), None).ok());
        named_namespaces.retain(|line| marked(line));
        Self {
            links,
            routes: lines(net.run("ip", &["route", "show", "table", "all"]).ok()),
            rules: net.run("nft", &["list", "ruleset"]).ok(),
            named_namespaces,
            mounts: mounts.lines().filter_map(|line| line.split(' ').nth(4)).filter(|at| marked(at)).map(str::to_owned).collect(),
            cgroups: cgroups().into_iter().filter(|path| marked(path)).collect(),
            shims: shims(&marked),
            run_dirs: run_dirs().into_iter().filter(|path| marked(path)).collect(),
        }
    }

    /// Whether the trace has at least one item of each kind that a running cluster has. A trace that finds nothing
    /// proves nothing.
    pub fn sees_a_cluster(&self) -> bool {
        let sets = [&self.links, &self.routes, &self.mounts, &self.cgroups, &self.shims, &self.run_dirs];
        sets.iter().all(|set| !set.is_empty()) && !self.rules.is_empty()
    }
}

/// The cgroup directories of all clusters, in every hierarchy.
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

/// The directories under `/run/skiff`: one for each node, valid until the next boot.
fn run_dirs() -> BTreeSet<String> {
    std::fs::read_dir("/run/skiff").into_iter().flatten().flatten().map(|entry| entry.path().display().to_string()).collect()
}

/// Process ids of the shims whose command line the closure accepts.
pub fn shims(marked: &dyn Fn(&str) -> bool) -> BTreeSet<String> {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    processes
        .filter_map(|entry| {
            let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let ours = name.starts_with("skiff-shim") && marked(&String::from_utf8_lossy(&line));
            ours.then(|| entry.file_name().to_string_lossy().into_owned())
        })
        .collect()
}
