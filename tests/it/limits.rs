//! What holds for a Pod as a whole, or for none of its containers: limits of `spec.resources`, sysctls that the node allows, groups of the
//! image, and privileges that a WebAssembly container cannot have. Huge pages of containers and volumes. Then what a running Pod gets when
//! its resources change.

mod huge_pages;
mod resizes;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tests::kubectl::container_id;
use tests::{Cluster, Kubectl};

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: whole}
spec:
  terminationGracePeriodSeconds: 1
  resources: {requests: {cpu: 300m, memory: 32Mi}, limits: {cpu: 500m, memory: 64Mi}}
  securityContext: {sysctls: [{name: kernel.msgmax, value: "4096"}, {name: net/core/somaxconn, value: "100"}]}
  volumes: [{name: fast, emptyDir: {medium: Memory}}]
  containers:
    - name: open
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sleep, "1000000"]
      env:
        - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}
        - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory}}}
      volumeMounts: [{name: fast, mountPath: /fast}]
    - name: own
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sleep, "1000000"]
      resources: {limits: {cpu: 200m, memory: 16Mi}}
    - name: guest
      image: samples/web:latest
      imagePullPolicy: Never
      resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]
---
apiVersion: v1
kind: Pod
metadata: {name: eater}
spec:
  restartPolicy: Never
  resources: {limits: {memory: 32Mi}}
  containers:
    - name: main
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [dd, if=/dev/zero, of=/dev/null, bs=200M, count=1]
---
apiVersion: v1
kind: Pod
metadata: {name: strict}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {supplementalGroups: [3000], supplementalGroupsPolicy: Strict}
  containers:
    - {name: main, image: "samples/tools:latest", imagePullPolicy: Never, command: [sleep, "1000000"]}
    - {name: guest, image: "samples/web:latest", imagePullPolicy: Never}
---
apiVersion: v1
kind: Pod
metadata: {name: semaphores}
spec:
  securityContext: {sysctls: [{name: kernel.sem, value: "1 1 1 1"}]}
  containers: [{name: main, image: "samples/tools:latest", imagePullPolicy: Never, command: [sleep, "1000000"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: privileged}
spec:
  containers: [{name: guest, image: "samples/web:latest", imagePullPolicy: Never, securityContext: {privileged: true}}]
"#;

#[test]
fn limits_and_rights_of_a_whole_pod_hold() {
    // The node reads their number when it starts.
    let _pages = huge_pages::Reserved::further(4);
    let cluster = Cluster::up_with(&["--allowed-unsafe-sysctls=kernel.msg*,net.core.somaxconn"]);
    let kubectl = cluster.kubectl();
    kubectl.apply(&format!("{PODS}---{}---{}", resizes::ELASTIC, huge_pages::PODS)).ok();
    for pod in ["whole", "strict", "pages"] {
        kubectl.until_ready(pod);
    }
    resizes::one_that_cannot_shrink_holds_up_no_other(&kubectl);
    limits_of_the_whole_pod_hold(&kubectl);
    the_node_allows_sysctls(&kubectl);
    groups_of_the_image_count(&kubectl);
    a_guest_has_the_groups_of_its_pod(&kubectl);
    kubectl.until_waiting("privileged", "CreateContainerConfigError", "has securityContext.privileged: a WebAssembly");
    huge_pages::the_node_has_them(&kubectl);
    huge_pages::a_container_has_no_more_than_its_limit(&kubectl);
    huge_pages::a_volume_has_them_as_files(&kubectl);
    huge_pages::a_pod_that_cannot_have_them_waits(&kubectl);
    resizes::a_container_starts_again_if_its_policy_says_so(&kubectl);
    resizes::it_shrinks_when_it_can(&kubectl);
    resizes::room_goes_to_the_first_in_line(&kubectl);
}

fn limits_of_the_whole_pod_hold(kubectl: &Kubectl<'_>) {
    assert_eq!(kubectl.field("pod/whole", "/status/qosClass"), json!("Burstable"));
    let pod = cgroups(&kubectl.uid("whole"));
    assert_eq!(limits(&pod), ("67108864".to_owned(), "50000 100000".to_owned()));
    for (container, memory, cpu) in
        [("open", "67108864", "50000 100000"), ("own", "16777216", "20000 100000"), ("guest", "67108864", "50000 100000")]
    {
        assert_eq!(resizes::limits_of(&kubectl.container("whole", container)), (memory.to_owned(), cpu.to_owned()), "{container}");
    }
    let seen = kubectl.run(&["exec", "whole", "-c", "open", "--", "sh", "-c", "echo $CPU $MEMORY; df -k /fast | tail -n 1"]).ok();
    let words: Vec<&str> = seen.split_whitespace().collect();
    assert_eq!((words[0], words[1], words[3]), ("500", "67108864", "65536"), "{seen}");
    resizes::a_whole_pod_is_resized(kubectl);
    kubectl.until("pod/eater", "/status/phase", "Failed");
    assert_eq!(kubectl.field("pod/eater", "/status/containerStatuses/0/state/terminated/reason"), json!("OOMKilled"));
}

fn the_node_allows_sysctls(kubectl: &Kubectl<'_>) {
    assert_eq!(kubectl.ok("exec whole -c open -- cat /proc/sys/kernel/msgmax /proc/sys/net/core/somaxconn"), "4096\n100\n");
    kubectl.until("pod/semaphores", "/status/phase", "Failed");
    assert_eq!(kubectl.field("pod/semaphores", "/status/reason"), json!("SysctlForbidden"));
    assert_eq!(
        kubectl.field("pod/semaphores", "/status/message"),
        json!("Pod was rejected: forbidden sysctl: \"kernel.sem\" not allowlisted")
    );
}

/// The image has root in the group 10.
fn groups_of_the_image_count(kubectl: &Kubectl<'_>) {
    for (pod, container, groups) in [("whole", "open", [0, 10]), ("strict", "main", [0, 3000])] {
        assert_eq!(kubectl.ok(&format!("exec {pod} -c {container} -- id -G")), format!("{} {}\n", groups[0], groups[1]), "{pod}");
        let process = kubectl.ok(&format!("exec {pod} -c {container} -- cat /proc/self/status"));
        let of_process: Vec<&str> =
            process.lines().find_map(|line| line.strip_prefix("Groups:")).into_iter().flat_map(str::split_whitespace).collect();
        assert_eq!(of_process, groups.map(|group| group.to_string()), "{pod}: the own group is among the others");
        let statuses = kubectl.field(&format!("pod/{pod}"), "/status/containerStatuses");
        let status = statuses.as_array().and_then(|all| all.iter().find(|status| status["name"] == container)).expect("a status");
        assert_eq!(status["user"], json!({"linux": {"uid": 0, "gid": 0, "supplementalGroups": groups}}), "{pod}");
    }
    let nodes = kubectl.json("get nodes");
    assert_eq!(nodes.pointer("/items/0/status/features/supplementalGroupsPolicy"), Some(&json!(true)));
}

/// The policy of its Pod is `Strict`.
fn a_guest_has_the_groups_of_its_pod(kubectl: &Kubectl<'_>) {
    let status = kubectl.container("strict", "guest");
    let user = &status["user"]["linux"];
    let mut groups = user["supplementalGroups"].as_array().cloned().unwrap_or_default();
    groups.retain(|group| *group != user["gid"]);
    assert_eq!(groups, [json!(3000)], "{status}");
    let (uid, gid) = (user["uid"].to_string(), user["gid"].to_string());
    let words = |status: &str, field: &str| -> Vec<String> {
        status.lines().find_map(|line| line.strip_prefix(field)).into_iter().flat_map(str::split_whitespace).map(str::to_owned).collect()
    };
    let processes: Vec<_> = pids(&status).iter().filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/status")).ok()).collect();
    let of_guest: Vec<_> = processes.iter().filter(|process| words(process, "Uid:").first() == Some(&uid)).collect();
    assert!(!of_guest.is_empty(), "user {uid}: {processes:?}");
    for process in of_guest {
        let mut groups = words(process, "Groups:");
        groups.retain(|group| *group != gid);
        assert_eq!(groups, ["3000"], "{process}");
    }
}

/// The directories of a cgroup in all hierarchies.
pub(super) fn cgroups(name: &str) -> Vec<PathBuf> {
    fn find(dir: &Path, name: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if entry.file_name().to_string_lossy().contains(name) {
                found.push(entry.path());
            } else {
                find(&entry.path(), name, found);
            }
        }
    }
    let mut found = Vec::new();
    find(Path::new("/sys/fs/cgroup"), name, &mut found);
    found
}

/// The processes in a container's cgroups, by its status.
fn pids(status: &Value) -> BTreeSet<i32> {
    let lists = cgroups(container_id(status)).into_iter().filter_map(|dir| fs::read_to_string(dir.join("cgroup.procs")).ok());
    lists.flat_map(|text| text.lines().map(|pid| pid.parse::<i32>().expect("a process id")).collect::<Vec<_>>()).collect()
}

/// Whether a cgroup has these shares of CPU: cgroup v1 has them as they are, and cgroup v2 the weight for them.
pub(super) fn has_shares(dirs: &[PathBuf], shares: u32) -> Result<(), String> {
    let read = |file: &str| dirs.iter().find_map(|dir| fs::read_to_string(dir.join(file)).ok());
    let (found, wanted) = match read("cpu.shares") {
        Some(found) => (found, shares.to_string()),
        None => (read("cpu.weight").expect("a controller of CPU"), weight(shares).to_string()),
    };
    if found.trim() == wanted { Ok(()) } else { Err(format!("{} instead of {wanted}", found.trim())) }
}

/// The weight for shares: upstream's curve through (2, 1), (1024, 100) and (262144, 10000).
fn weight(shares: u32) -> f64 {
    let log = f64::from(shares).log2();
    10_f64.powf((log * log + 125.0 * log) / 612.0 - 7.0 / 34.0).ceil()
}

/// Bytes of memory, and the quota of CPU with its period.
pub(super) fn limits(dirs: &[PathBuf]) -> (String, String) {
    let read = |file: &str| dirs.iter().find_map(|dir| fs::read_to_string(dir.join(file)).ok()).map(|text| text.trim().to_owned());
    let memory = read("memory.max").or_else(|| read("memory.limit_in_bytes"));
    let cpu = read("cpu.max").or_else(|| Some(format!("{} {}", read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?)));
    (memory.unwrap_or_else(|| panic!("{dirs:?}")), cpu.unwrap_or_else(|| panic!("{dirs:?}")))
}
