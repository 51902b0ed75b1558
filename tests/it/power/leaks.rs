//! What a machine holds of Pods that do not exist in the API: cgroups, mounts, namespaces, records, files.

use std::collections::BTreeSet;

use serde_json::Value;
use tests::machine::{DATA, Machine};

/// Prints one line for each item with a Pod's UID or a container's id in its name: `uid WHAT UID` or `id WHAT ID`.
/// Half-written names are printed as they are.
const SURVEY: &str = r#"
run=$(readlink DATA/run)
each() { for path in $3; do [ -e "$path" ] && echo "$1 $2 $(basename "$path")"; done; }
find /sys/fs/cgroup/skiff -type d -name 'pod*' | sed 's|.*/pod|uid cgroup |'
find /sys/fs/cgroup/skiff -type d -path '*/pod*/*' | sed 's|.*/|id cgroup |'
each uid volumes 'DATA/kubelet/pods/*'
each uid namespaces "$run/network/ns/*"
for path in "$run"/network/pods/*.json; do [ -e "$path" ] && echo "uid address $(basename "$path" .json)"; done
each id record "$run/runc/containers/* $run/wasmtime/containers/*"
each id runc "$run/runc/runc/*"
each id image-mount 'DATA/images/mounts/*'
for dir in DATA/pods/*; do [ -e "$dir" ] && echo "uid logs ${dir##*_}"; done
awk '{print $5}' /proc/self/mountinfo | sed -n 's|^.*/images/mounts/\([^/]*\)/.*|id mount \1|p; s|^.*/kubelet/pods/\([^/]*\)/.*|uid mount \1|p; s|^.*/network/ns/\([^/]*\)/.*|uid mount \1|p'
for shim in $(pgrep skiff-shim); do echo "id shim $(tr '\0' '\n' < /proc/$shim/cmdline | sed -n 's|^.*/containers/\([0-9a-f]*\)$|\1|p' | head -n 1)"; done
find DATA "$run" -name '*.new' -o -name '*.tmp' -o -name '*.partial' | sed 's|^|half |'
ls DATA/images/tmp | sed 's|^|half images/tmp/|'
for old in runc wasmtime network; do [ -e "DATA/$old" ] && echo "half DATA/$old"; done
true
"#;

/// The items that belong to no Pod of the list.
pub fn find(machine: &mut Machine, pods: &Value) -> BTreeSet<String> {
    let pods = super::list(pods);
    let uids: BTreeSet<&str> = pods.iter().filter_map(|pod| pod["metadata"]["uid"].as_str()).collect();
    let ids: BTreeSet<&str> = pods.iter().flat_map(container_ids).collect();
    let survey = machine.run(&SURVEY.replace("DATA", DATA)).ok();
    assert!(survey.contains("uid cgroup ") && survey.contains("id mount ") && survey.contains("id shim "), "it sees what runs:\n{survey}");
    let is_known = |line: &&str| match line.splitn(3, ' ').collect::<Vec<_>>()[..] {
        ["uid", _, uid] => uids.contains(uid),
        ["id", _, id] => ids.contains(id),
        _ => false,
    };
    survey.lines().filter(|line| !is_known(line)).map(str::to_owned).collect()
}

/// Ids of a Pod's containers: the present ones and the previous ones, whose logs are still available.
fn container_ids(pod: &Value) -> Vec<&str> {
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let ids = statuses.iter().filter_map(|status| status["containerID"].as_str());
    ids.filter_map(|id| id.split_once("://").map(|(_, bare)| bare)).collect()
}
