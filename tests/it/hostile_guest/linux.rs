//! A Linux container with hostile code, at PodSecurity `baseline`: against the runtime that creates it, against the
//! node that reads its files and cleans up, and against resources that all Pods share.

use std::fs;
use std::path::{Path, PathBuf};

use tests::kubectl::container_id;
use tests::run::eventually;
use tests::{Cluster, Kubectl};

/// Limit of processes of one Pod.
const PIDS_MAX: &str = "100";
/// How much the node may have grown at the end.
const GROWTH_KIB_MAX: u64 = 256 << 10;

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: intruder}
spec:
  runtimeClassName: runc
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "samples/tools:latest", imagePullPolicy: Never, command: [sleep, "1000000"]}]
---
# One container prepares a place from which runc would take what hides the kernel's files from the other.
apiVersion: v1
kind: Pod
metadata: {name: unmasked}
spec:
  runtimeClassName: runc
  restartPolicy: Never
  initContainers:
    - name: plants
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "/bin/busybox ln -s /proc/sys/kernel/core_pattern /shared/null"]
      volumeMounts: [{name: shared, mountPath: /shared}]
  containers:
    - name: c
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "cat /proc/timer_list"]
      volumeMounts: [{name: shared, mountPath: /dev}]
  volumes: [{name: shared, emptyDir: {}}]
---
# Directories within directories, in its root and in a volume; and a hosts file larger than any memory.
apiVersion: v1
kind: Pod
metadata: {name: deep}
spec:
  runtimeClassName: runc
  terminationGracePeriodSeconds: 1
  containers:
    - name: c
      image: samples/tools:latest
      imagePullPolicy: Never
      command:
        - sh
        - -c
        - |
          b=/bin/busybox
          path=d; n=1; while [ $n -lt 1000 ]; do path=$path/d; n=$((n + 1)); done
          for top in /scratch; do
            cd $top; n=0; while [ $n -lt 21 ]; do $b mkdir -p $path && cd $path; n=$((n + 1)); done
          done
          $b truncate -s 4T /etc/hosts
          cd /; echo nested; $b sleep 1000000
      volumeMounts: [{name: scratch, mountPath: /scratch}]
  volumes: [{name: scratch, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: forks}
spec:
  runtimeClassName: runc
  terminationGracePeriodSeconds: 1
  containers:
    - name: c
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "n=0; while [ $n -lt 300 ]; do /bin/busybox sleep 1000000 & n=$((n + 1)); done; echo forked; wait"]
---
apiVersion: v1
kind: Pod
metadata: {name: modest}
spec:
  runtimeClassName: wasmtime
  containers: [{name: c, image: "samples/web:latest", imagePullPolicy: Never, resources: {requests: {memory: 1Mi}}}]
"#;

/// What root in a container tries: each command succeeds only if the attack worked.
const TRIES: &[(&str, &str)] = &[
    ("a mount", "b mount -t tmpfs none /tmp"),
    ("a namespace", "b unshare -U true"),
    ("the node's disk", "b mknod /tmp/disk b 254 0 && b head -c 512 /tmp/disk"),
    ("the kernel's memory", "b head -c 1 /proc/kcore"),
    ("the kernel's timers", "b grep -q . /proc/timer_list"),
    ("keys", "b grep -q . /proc/keys"),
    ("what runs at a crash", "echo x > /proc/sys/kernel/core_pattern"),
    ("the magic key", "echo h > /proc/sysrq-trigger"),
    ("the kernel's settings", "echo 1 > /sys/kernel/mm/transparent_hugepage/enabled"),
    ("its own limits", "echo 1000 > /sys/fs/cgroup/pids/pids.max"),
    ("another cgroup", "b mkdir /sys/fs/cgroup/memory/more"),
    ("being ended late", "echo -999 > /proc/self/oom_score_adj"),
    ("the node's clock", "b date -s 2030-01-01; [ $(b date +%Y) = 2030 ]"),
    ("the node's name", "b hostname node"),
    ("a module of the kernel", "b insmod /bin/busybox"),
    ("the node's processes", "[ $(b ls -d /proc/[0-9]* | b wc -l) -gt 20 ]"),
    (
        "what runc left open",
        "b ls -l /proc/self/fd | b grep -e ' -> ' | b grep -v -e pipe: -e /dev/null -e /proc/ -e total -e socket: | b grep -q .",
    ),
];

#[test]
fn a_hostile_container_costs_its_own_limits_and_stays_inside() {
    let mut cluster = Cluster::up_with(&["--pod-max-pids", PIDS_MAX]);
    let memory = memory_kib(cluster.pid());
    {
        let kubectl = cluster.kubectl();
        kubectl.until_usable("default");
        kubectl.ok("label namespace default pod-security.kubernetes.io/enforce=baseline");
        kubectl.apply(PODS).ok();
        unmasked(&kubectl);
        stays_inside(&kubectl);
        goes_first(&cluster, &kubectl);
        forks(&kubectl);
        eventually("directories are nested", || {
            let log = kubectl.run(&["logs", "deep"]);
            if log.to_string().contains("nested") { Ok(()) } else { Err(log.to_string()) }
        });
    }
    // A node that starts writes the files of its Pods again, and reads the existing ones.
    assert_eq!(cluster.stop(), 0);
    cluster.start();
    let kubectl = cluster.kubectl();
    for pod in ["deep", "modest", "intruder"] {
        kubectl.until_ready(pod);
    }
    kubectl.ok("delete pod --all --wait --timeout=120s");
    assert!(cluster.is_running(), "{}", cluster.log());
    let left = fs::read_dir(cluster.data_dir().join("kubelet/pods")).expect("lists").count();
    assert_eq!(left, 0, "directories of Pods are left");
    let grown = memory_kib(cluster.pid()).saturating_sub(memory);
    assert!(grown < GROWTH_KIB_MAX, "the node has grown by {grown} KiB");
}

fn unmasked(kubectl: &Kubectl<'_>) {
    kubectl.until("pod/unmasked", "/status/phase", "Failed");
    let ended = kubectl.field("pod/unmasked", "/status/containerStatuses/0/state/terminated");
    assert_eq!(ended["reason"], "StartError", "{ended}");
    assert!(ended["message"].as_str().is_some_and(|message| message.contains("is not hidden from the container")), "{ended}");
}

fn stays_inside(kubectl: &Kubectl<'_>) {
    kubectl.until_ready("intruder");
    let script: String =
        TRIES.iter().map(|(what, code)| format!("if ( {code} ) >/dev/null 2>&1; then echo \"has: {what}\"; fi\n")).collect();
    let script = format!("b() {{ /bin/busybox \"$@\"; }}\n{script}echo tried");
    let said = kubectl.run(&["exec", "intruder", "--", "sh", "-c", &script]).ok();
    assert_eq!(said.trim(), "tried");
}

/// When memory runs out, the kernel kills the container before the node. If this machine's root may not lower a score
/// (`CAP_SYS_RESOURCE`), the node keeps the score of its start.
fn goes_first(cluster: &Cluster, kubectl: &Kubectl<'_>) {
    let score = |path: &Path| fs::read_to_string(path).expect("a score").trim().to_owned();
    let own = score(Path::new("/proc/self/oom_score_adj"));
    let expected = if cluster.log().contains("may be ended when a Pod uses up") { own.as_str() } else { "-999" };
    assert_eq!(score(&PathBuf::from(format!("/proc/{}/oom_score_adj", cluster.pid()))), expected);
    assert_eq!(kubectl.ok("exec intruder -- cat /proc/self/oom_score_adj").trim(), "1000");
    kubectl.until_ready("modest");
    let status = kubectl.field("pod/modest", "/status/containerStatuses/0");
    let shim = tests::trace::shims(&|line| line.contains(container_id(&status)));
    let shim = shim.first().expect("a shim");
    assert_eq!(score(&PathBuf::from(format!("/proc/{shim}/oom_score_adj"))), "999");
}

fn forks(kubectl: &Kubectl<'_>) {
    eventually("it cannot fork", || {
        let log = kubectl.run(&["logs", "forks"]).to_string();
        if log.contains("can't fork") { Ok(()) } else { Err(log) }
    });
}

fn memory_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its size");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
