//! A node that gives containers CPUs of their own: a Guaranteed Pod has them alone, whether Linux or WebAssembly, through a crash of
//! the node, and all others run on the rest until it is gone. The first CPU of the machine is reserved.

use std::collections::BTreeSet;
use std::fs;

use tests::cluster::tool;
use tests::{Cluster, Kubectl, eventually};

/// A Pod of the shared pool: it is Burstable by its memory alone, because the other Pod takes all CPU that is left.
const SHARED: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: shared}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "while :; do sleep 1; done"]
      resources: {requests: {memory: 16Mi}}
"#;

const GUARANTEED: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  NODE
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: samples/IMAGE:latest
      imagePullPolicy: Never
      COMMAND
      resources: {limits: {cpu: COUNT, memory: 64Mi}}
";

#[test]
fn a_guaranteed_pod_has_cpus_of_its_own() {
    let all = online();
    let own = all.len() - 1;
    assert!(own > 0, "the story needs a machine with two CPUs");
    let mut cluster = Cluster::up_with(&["--cpu-manager-policy=static", "--reserved-cpus=0"]);
    let first: BTreeSet<u32> = [0].into();
    let others: BTreeSet<u32> = all.difference(&first).copied().collect();
    let allocatable = cluster.kubectl().ok("get nodes -o jsonpath={.items[0].status.allocatable.cpu}");
    assert_eq!(allocatable, own.to_string());
    cluster.kubectl().apply(SHARED).ok();
    cluster.kubectl().until_ready("shared");
    until_on(&cluster.kubectl(), "shared", &all);
    for (image, command) in [("tools", "command: [sh, -c, 'while :; do sleep 1; done']"), ("web", "")] {
        let guaranteed = |name: &str, node: &str| {
            let pod = GUARANTEED.replace("NAME", name).replace("IMAGE", image).replace("COMMAND", command).replace("NODE", node);
            pod.replace("COUNT", &own.to_string())
        };
        cluster.kubectl().apply(&guaranteed("own", "")).ok();
        cluster.kubectl().until_ready("own");
        until_on(&cluster.kubectl(), "own", &others);
        until_on(&cluster.kubectl(), "shared", &first);
        no_other_gets_them(&cluster.kubectl(), &guaranteed);
        it_is_not_resized(&cluster, own);
        let state = fs::read_to_string(cluster.data_dir().join("kubelet/cpu_manager_state")).expect("the state file");
        assert!(state.starts_with(r#"{"policyName":"static","defaultCpuSet":"0","entries":{""#), "{state}");
        cluster.kill();
        cluster.start();
        cluster.kubectl().until_ready("own");
        until_on(&cluster.kubectl(), "own", &others);
        until_on(&cluster.kubectl(), "shared", &first);
        assert_eq!(cluster.kubectl().field("pod/own", "/status/containerStatuses/0/restartCount"), 0, "it goes on");
        assert_eq!(fs::read_to_string(cluster.data_dir().join("kubelet/cpu_manager_state")).expect("the state file"), state);
        cluster.kubectl().ok("delete pod own --timeout=60s");
        until_on(&cluster.kubectl(), "shared", &all);
    }
    cluster.kubectl().ok("delete pod shared --timeout=60s");
}

/// The scheduler knows that no CPU is left; the node rejects a Pod that was bound to it without the scheduler.
fn no_other_gets_them(kubectl: &Kubectl<'_>, guaranteed: &dyn Fn(&str, &str) -> String) {
    kubectl.apply(&guaranteed("second", "")).ok();
    eventually("the second Pod waits for CPU", || {
        let text = kubectl.ok("describe pod second");
        if text.contains("Insufficient cpu") { Ok(()) } else { Err(text) }
    });
    let node = kubectl.ok("get nodes -o jsonpath={.items[0].metadata.name}");
    kubectl.apply(&guaranteed("bound", &format!("nodeName: {node}"))).ok();
    kubectl.until("pod/bound", "/status/reason", "UnexpectedAdmissionError");
    let message = kubectl.field("pod/bound", "/status/message");
    let message = message.as_str().unwrap_or_default();
    let wanted = "Pod was rejected: Allocate failed due to not enough cpus available to satisfy request: requested=";
    assert!(message.starts_with(wanted) && message.ends_with(", available=0, which is unexpected"), "{message}");
    kubectl.ok("delete pod second bound --timeout=60s");
}

fn it_is_not_resized(cluster: &Cluster, own: usize) {
    let resources = format!(r#"{{"limits":{{"cpu":"{own}","memory":"80Mi"}},"requests":{{"cpu":"{own}","memory":"80Mi"}}}}"#);
    let patch = format!(r#"{{"spec":{{"containers":[{{"name":"main","resources":{resources}}}]}}}}"#);
    let kubectl = cluster.kubectl().with_program(tool("kubectl"));
    kubectl.run(&["patch", "pod", "own", "--subresource=resize", "-p", &patch]).ok();
    eventually("the resize is infeasible", || {
        let condition = kubectl.condition("pod/own", "PodResizePending");
        let wanted = "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy";
        if condition["message"].as_str().is_some_and(|text| text.contains(wanted)) { Ok(()) } else { Err(condition.to_string()) }
    });
}

/// The CPUs of this machine.
fn online() -> BTreeSet<u32> {
    cpus(&fs::read_to_string("/sys/devices/system/cpu/online").expect("the machine's CPUs"))
}

/// A list of the kernel's, such as `0-3,8`.
fn cpus(list: &str) -> BTreeSet<u32> {
    let ranges = list.trim().split(',').map(|part| part.split_once('-').unwrap_or((part, part)));
    let number = |text: &str| text.parse::<u32>().expect("a CPU");
    ranges.flat_map(|(first, last)| number(first)..=number(last)).collect()
}

/// Waits until all threads of a Pod's processes run on these CPUs.
fn until_on(kubectl: &Kubectl<'_>, pod: &str, wanted: &BTreeSet<u32>) {
    let uid = kubectl.uid(pod);
    eventually(&format!("{pod} runs on {wanted:?}"), || {
        let lists: BTreeSet<String> = threads_of(&uid).into_iter().collect();
        let is_right = !lists.is_empty() && lists.iter().all(|list| cpus(list) == *wanted);
        if is_right { Ok(()) } else { Err(format!("{lists:?}")) }
    });
}

/// The CPUs of each thread of the processes in a Pod's cgroups. One that ends meanwhile is left out.
fn threads_of(uid: &str) -> Vec<String> {
    let pids = fs::read_dir("/proc").expect("/proc").filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let of_pod = pids.filter(|pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|text| text.contains(uid)));
    let threads = of_pod.filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok()).flatten().flatten();
    let list = |status: String| Some(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_owned());
    threads.filter_map(|thread| list(fs::read_to_string(thread.path().join("status")).ok()?)).collect()
}
