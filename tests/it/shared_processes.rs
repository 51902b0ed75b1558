//! Pods whose containers share their processes: what they see, what they may do to each other and to the first process, and what
//! follows when that one is killed.

use std::fs;

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, eventually};

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: shared}
spec:
  shareProcessNamespace: true
  terminationGracePeriodSeconds: 30
  volumes: [{name: notes, emptyDir: {}}]
  initContainers:
    - name: first
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "echo ran >> /notes/init"]
      volumeMounts: [{name: notes, mountPath: /notes}]
  containers:
    - name: app
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "echo $$$$>/notes/pid; trap 'echo heard >> /notes/heard; exit 0' TERM; while :; do sleep 1 & wait $!; done"]
      volumeMounts: [{name: notes, mountPath: /notes}]
    - name: other
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "sleep 7654321"]
      volumeMounts: [{name: notes, mountPath: /notes}]
---
apiVersion: v1
kind: Pod
metadata: {name: once}
spec:
  shareProcessNamespace: true
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers: [{name: app, image: "samples/tools:latest", imagePullPolicy: Never, command: [sh, -c, "sleep 1000000"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: mixed}
spec:
  shareProcessNamespace: true
  terminationGracePeriodSeconds: 1
  containers: [{name: web, image: "samples/web:latest", imagePullPolicy: Never}]
"#;

#[test]
fn containers_of_a_pod_share_their_processes() {
    let mut cluster = Cluster::up();
    cluster.kubectl().apply(PODS).ok();
    cluster.kubectl().until_ready("shared");
    cluster.kubectl().until_ready("once");
    they_see_and_signal_each_other(&cluster.kubectl());
    nobody_inside_ends_the_first_process(&cluster);
    a_debugger_sees_them_all(&cluster.kubectl());
    a_webassembly_container_says_why_it_does_not_start(&cluster.kubectl());
    they_survive_an_agent(&mut cluster);
    a_pod_gets_another_sandbox(&cluster);
    a_pod_that_runs_once_fails(&cluster);
    another_sandbox_is_made_after_an_agent_was_away(&mut cluster);
    nothing_is_left(&cluster);
}

/// The pause processes of a Pod on this machine, by their cgroup.
fn pauses(kubectl: &Kubectl<'_>, pod: &str) -> Vec<i32> {
    let uid = kubectl.uid(pod);
    all_pauses().into_iter().filter(|pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|text| text.contains(&uid))).collect()
}

fn all_pauses() -> Vec<i32> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"/pause\0")).collect()
}

fn kill_pause(kubectl: &Kubectl<'_>, pod: &str) {
    let found = pauses(kubectl, pod);
    let [pause] = found.as_slice() else { panic!("{pod}: {found:?}") };
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pause), nix::sys::signal::Signal::SIGKILL).unwrap();
}

fn restarts(kubectl: &Kubectl<'_>, app: i64, other: i64) {
    eventually(&format!("app was restarted {app} times, other {other} times"), || {
        let statuses = kubectl.field("pod/shared", "/status/containerStatuses");
        let counts = [&statuses[0]["restartCount"], &statuses[1]["restartCount"]];
        if counts == [&json!(app), &json!(other)] { Ok(()) } else { Err(statuses.to_string()) }
    });
    kubectl.until_ready("shared");
}

fn inits(kubectl: &Kubectl<'_>) -> usize {
    kubectl.ok("exec shared -c other -- cat /notes/init").lines().count()
}

fn they_see_and_signal_each_other(kubectl: &Kubectl<'_>) {
    let seen = kubectl.ok("exec shared -c app -- sh -c cat</proc/1/comm");
    assert_eq!(seen.trim(), "pause");
    let seen = kubectl.with_input("exec -i shared -c app -- sh", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '\n").ok();
    assert!(seen.contains("sleep 7654321") && seen.contains("/pause"), "{seen}");
    // An orphan is reaped by the first process.
    let orphan = "(sleep 0 & echo $!) > /notes/orphan; n=0
        while [ -e /proc/$(cat /notes/orphan) ] && [ $n -lt 99999 ]; do n=$((n+1)); done
        [ -e /proc/$(cat /notes/orphan) ] || echo reaped\n";
    assert_eq!(kubectl.with_input("exec -i shared -c other -- sh", orphan).ok().trim(), "reaped");
    kubectl.with_input("exec -i shared -c other -- sh", "kill -TERM $(cat /notes/pid)\n").ok();
    restarts(kubectl, 1, 0);
    assert_eq!(kubectl.ok("exec shared -c other -- cat /notes/heard").trim(), "heard");
    assert_eq!(kubectl.field("pod/shared", "/status/containerStatuses/0/lastState/terminated/exitCode"), 0);
    assert_eq!(inits(kubectl), 1);
}

/// A tenant tries: as root of its container, from any of them.
fn nobody_inside_ends_the_first_process(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let before = pauses(&kubectl, "shared");
    let tried = "for signal in HUP INT TERM QUIT USR1 STOP KILL; do kill -$signal 1; done; ls /proc/1/root/ /proc/1/cwd/; cat /proc/1/exe; exit 0\n";
    let said = kubectl.with_input("exec -i shared -c other -- sh", tried);
    assert!(said.stderr.matches("Permission denied").count() >= 3, "{said}");
    restarts(&kubectl, 1, 0);
    assert_eq!((pauses(&kubectl, "shared"), before.len()), (before, 1));
}

fn a_debugger_sees_them_all(kubectl: &Kubectl<'_>) {
    for (name, target) in [("targeted", "--target=app"), ("plain", "")] {
        let words = format!("debug -i shared --image=samples/tools:latest --image-pull-policy=Never {target} -c {name} -- sh");
        let said = kubectl.with_input(&words, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; exit 0\n");
        assert!(said.stdout.contains("sleep 7654321"), "{said}");
    }
}

fn a_webassembly_container_says_why_it_does_not_start(kubectl: &Kubectl<'_>) {
    kubectl.until_waiting("mixed", "CreateContainerError", "shareProcessNamespace is set");
}

fn they_survive_an_agent(cluster: &mut Cluster) {
    let (pauses_before, shims) = (all_pauses(), cluster.shims());
    cluster.kill();
    cluster.start();
    assert_eq!((all_pauses(), cluster.shims()), (pauses_before, shims));
    restarts(&cluster.kubectl(), 1, 0);
}

fn a_pod_gets_another_sandbox(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let ip = kubectl.ip("shared");
    kill_pause(&kubectl, "shared");
    restarts(&kubectl, 2, 1);
    assert_eq!(inits(&kubectl), 2, "init containers run again");
    assert_eq!(kubectl.ip("shared"), ip);
    let last = kubectl.field("pod/shared", "/status/containerStatuses/1/lastState/terminated");
    assert_eq!(last["exitCode"], 137, "{last}");
    let described = kubectl.ok("describe pod shared");
    assert!(described.contains("SandboxChanged") && described.contains("it will be killed and re-created"), "{described}");
    let seen = kubectl.with_input("exec -i shared -c app -- sh", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '\n").ok();
    assert!(seen.contains("sleep 7654321"), "{seen}");
}

fn a_pod_that_runs_once_fails(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kill_pause(&kubectl, "once");
    kubectl.until("pod/once", "/status/phase", "Failed");
    assert_eq!(kubectl.field("pod/once", "/status/containerStatuses/0/restartCount"), 0);
    eventually("its sandbox is gone", || match pauses(&kubectl, "once").as_slice() {
        [] => Ok(()),
        left => Err(format!("{left:?}")),
    });
}

fn another_sandbox_is_made_after_an_agent_was_away(cluster: &mut Cluster) {
    let found = pauses(&cluster.kubectl(), "shared");
    cluster.kill();
    for pause in found {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pause), nix::sys::signal::Signal::SIGKILL).unwrap();
    }
    cluster.start();
    restarts(&cluster.kubectl(), 3, 2);
    assert_eq!(inits(&cluster.kubectl()), 3);
}

fn nothing_is_left(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let mine: Vec<i32> = pauses(&kubectl, "shared");
    let statuses: Value = kubectl.field("pod/shared", "/status/containerStatuses");
    assert_eq!(mine.len(), 1, "{statuses}");
    kubectl.ok("delete pods --all --wait --timeout=90s");
    eventually("no container and no pause process is left", || {
        let (shims, left) = (cluster.shims(), all_pauses().into_iter().filter(|pid| mine.contains(pid)).collect::<Vec<_>>());
        if shims.is_empty() && left.is_empty() { Ok(()) } else { Err(format!("{shims:?} {left:?}")) }
    });
}
