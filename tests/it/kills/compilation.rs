//! The first compilation of a module: the node has no machine code of it, and starts a process that makes it. The steps are those of the
//! node before it starts that process, those of the process until it has written its result, and those by which the node names the result.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tests::Net;
use tests::supervisor::{Step, is_compiler};

/// The directory of machine code in a node's data directory.
const CACHE: &str = "compiled";
/// Fewer steps are not all.
pub(super) const STEPS_MIN: usize = 10;

/// The steps from the first to the last one in the directory of machine code, and all others.
pub(super) fn parted(steps: &[Step]) -> (Vec<Step>, Vec<Step>) {
    let is_in_cache = |step: &Step| step.to_string().contains(&format!("/{CACHE}/"));
    let first = steps.iter().position(is_in_cache).unwrap_or(steps.len());
    let end = steps.iter().rposition(is_in_cache).map_or(first, |last| last + 1);
    (steps[first..end].to_vec(), [&steps[..first], &steps[end..]].concat())
}

/// Removes the machine code of all modules and nothing else, so that each of them is compiled as if the node had never had it.
pub(super) fn forget(data_dir: &Path) {
    for entry in fs::read_dir(data_dir.join(CACHE)).expect("a cache").flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "cwasm" || extension == "json") {
            fs::remove_file(entry.path()).expect("removed");
        }
    }
}

/// The compilers in a node's network. One that has left it is in a cgroup of the node.
pub(super) fn compilers(net: &Net) -> impl Iterator<Item = i32> + use<> {
    let namespace = fs::metadata(format!("/run/netns/{}", net.name)).expect("a namespace").ino();
    let pids = fs::read_dir("/proc").expect("/proc").flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_in_net = move |pid: &i32| fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|meta| meta.ino() == namespace);
    pids.filter(|pid| is_compiler(*pid)).filter(is_in_net)
}
