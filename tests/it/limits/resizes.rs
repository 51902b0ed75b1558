//! Resizes of running Pods: a container starts again where its resizePolicy says so, and resizes that do not fit wait for room in
//! upstream's order.

use std::path::Path;

use serde_json::{Value, json};
use tests::kubectl::{condition, container_id};
use tests::{Kubectl, eventually};

use super::{cgroups, has_shares, limits};

/// A Linux container and a guest that start again for another memory limit, and a guest that cannot have one. A container with files in its
/// memory, and one without.
pub(super) const ELASTIC: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: elastic}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: linux
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sleep, "1000000"]
      resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]
      resources: {requests: {cpu: 100m}, limits: {cpu: 200m, memory: 64Mi}}
    - name: guest
      image: samples/web:latest
      imagePullPolicy: Never
      resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]
      resources: {limits: {memory: 64Mi}}
    - {name: fixed, image: "samples/echo:latest", imagePullPolicy: Never, resources: {limits: {memory: 64Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: full}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: holds
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "dd if=/dev/zero of=/dev/shm/part bs=1M count=40 && touch /dev/shm/full; exec sleep 1000000"]
      resources: {limits: {memory: 64Mi}}
    - name: moves
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sleep, "1000000"]
      resources: {limits: {memory: 64Mi}}
"#;

/// CPU that each Pod of the queue begins with, in thousandths.
const OWN: i64 = 150;

pub(super) fn a_container_starts_again_if_its_policy_says_so(kubectl: &Kubectl<'_>) {
    kubectl.until_ready("elastic");
    let memory = |container: &str, limit: &str| json!({"name": container, "resources": {"limits": {"memory": limit}}});
    resize(kubectl, "elastic", &json!([memory("linux", "96Mi"), memory("guest", "128Mi")]));
    for (container, limit, bytes) in [("linux", "96Mi", "100663296"), ("guest", "128Mi", "134217728")] {
        let status = until_resized(kubectl, container, "memory", limit, 1);
        assert_eq!(limits_of(&status).0, bytes, "{container}");
        eventually("an event says why", || {
            let text = kubectl.ok("describe pod elastic");
            if text.contains(&format!("Container {container} resize requires restart")) { Ok(()) } else { Err(text) }
        });
    }
    // The policy is for memory alone.
    let before = kubectl.container("elastic", "linux");
    resize(kubectl, "elastic", &json!([{"name": "linux", "resources": {"limits": {"cpu": "300m"}}}]));
    let after = until_resized(kubectl, "linux", "cpu", "300m", 1);
    assert_eq!(after["containerID"], before["containerID"], "{after}");
    assert_eq!(limits_of(&after), ("100663296".to_owned(), "30000 100000".to_owned()));

    resize(kubectl, "elastic", &json!([memory("fixed", "96Mi")]));
    let message = "the memory limit of WebAssembly container \"fixed\" cannot change while it runs; a resizePolicy RestartContainer for \
                   memory allows it";
    until_pending(kubectl, "elastic", "Infeasible", message);
    let fixed = kubectl.container("elastic", "fixed");
    assert_eq!((&fixed["restartCount"], &fixed["resources"]["limits"]["memory"]), (&json!(0), &json!("64Mi")), "{fixed}");
    assert_eq!(limits_of(&fixed).0, "67108864");
}

/// Both containers of a Pod shall have less memory than the first one uses. The second one gets it. At the end the first one gives memory
/// back, and the node tries again later: see [`it_shrinks_when_it_can`].
pub(super) fn one_that_cannot_shrink_holds_up_no_other(kubectl: &Kubectl<'_>) {
    // The memory is in use then.
    kubectl.until_ok("exec full -c holds -- test -e /dev/shm/full");
    let both = |limit: &str| json!({"requests": {"memory": limit}, "limits": {"memory": limit}});
    let memory = |container: &str, limit: &str| json!({"name": container, "resources": both(limit)});
    resize(kubectl, "full", &json!([memory("holds", "16Mi"), memory("moves", "32Mi")]));
    until_limited(kubectl, "moves", "32Mi", "33554432");
    let message = "attempting to set container \"holds\" memory limit (16777216) below current usage (";
    eventually("the resize reports the container that cannot shrink", || {
        let (condition, events) = (kubectl.condition("pod/full", "PodResizeInProgress"), kubectl.ok("events --for pod/full"));
        let is_error = condition["reason"] == "Error" && condition["message"].as_str().is_some_and(|text| text.starts_with(message));
        let is_recorded = events.contains("ResizeError") && events.contains(&format!("Pod resize error: {message}"));
        if is_error && is_recorded { Ok(()) } else { Err(format!("{condition}\n{events}")) }
    });
    until_limited(kubectl, "holds", "64Mi", "67108864");
    kubectl.ok("exec full -c holds -- rm /dev/shm/part");
}

/// Some time after [`one_that_cannot_shrink_holds_up_no_other`].
pub(super) fn it_shrinks_when_it_can(kubectl: &Kubectl<'_>) {
    until_limited(kubectl, "holds", "16Mi", "16777216");
    eventually("the resize is over", || {
        // Not by a call that may fail: then there is no condition either.
        let pod = kubectl.json("get pod full");
        let condition = condition(&pod, "PodResizeInProgress");
        if condition.is_null() { Ok(()) } else { Err(condition.to_string()) }
    });
}

/// Waits until a container of `full`, which never restarts, has that memory limit by its status and in its cgroup.
fn until_limited(kubectl: &Kubectl<'_>, container: &str, limit: &str, bytes: &str) {
    eventually(&format!("{container} has {limit}"), || {
        let status = kubectl.container("full", container);
        assert_eq!(status["restartCount"], 0, "{status}");
        let has = status["resources"]["limits"]["memory"] == limit && limits_of(&status).0 == bytes;
        if has { Ok(()) } else { Err(status.to_string()) }
    });
}

/// The Pod `whole` grows, and its containers without a limit of their own with it: a Linux container where it is, and a guest, which wants
/// it for memory, by a restart. Then it shrinks, and nothing restarts.
pub(super) fn a_whole_pod_is_resized(kubectl: &Kubectl<'_>) {
    let resize = |limits: Value| {
        let patch = json!({"spec": {"resources": {"limits": limits}}});
        kubectl.ok(&format!("patch pod whole --subresource=resize --patch {patch}"));
    };
    let uid = kubectl.uid("whole");
    let of_pod = || limits(&cgroups(&uid));
    let until = |what: &str, wanted: Value, restarts: [u32; 3], limits: &(String, String)| {
        eventually(what, || {
            let has = kubectl.field("pod/whole", "/status/resources/limits");
            let containers = ["open", "own", "guest"].map(|container| kubectl.container("whole", container));
            let is_over = pending(kubectl, "whole").is_null() && containers.iter().all(|status| status["ready"] == true);
            let restarted = containers.each_ref().map(|status| status["restartCount"].as_u64().unwrap_or_default());
            if has != wanted || !is_over || restarted != restarts.map(u64::from) {
                return Err(format!("{has}, {containers:?}"));
            }
            let own = ("16777216".to_owned(), "20000 100000".to_owned());
            let found = (of_pod(), containers.each_ref().map(limits_of));
            if found == (limits.clone(), [limits.clone(), own, limits.clone()]) { Ok(()) } else { Err(format!("{found:?}")) }
        });
    };
    let numbers = |memory: &str, cpu: &str| (memory.to_owned(), cpu.to_owned());
    resize(json!({"cpu": "800m", "memory": "96Mi"}));
    let grown = json!({"cpu": "800m", "memory": "96Mi"});
    until("the whole Pod has grown", grown, [0, 0, 1], &numbers("100663296", "80000 100000"));
    resize(json!({"cpu": "400m"}));
    let shrunk = json!({"cpu": "400m", "memory": "96Mi"});
    until("the whole Pod has shrunk", shrunk, [0, 0, 1], &numbers("100663296", "40000 100000"));
    assert_eq!(kubectl.field("pod/whole", "/status/allocatedResources"), json!({"cpu": "300m", "memory": "32Mi"}));
    let refused = kubectl.fails(&format!("patch pod whole --subresource=resize --patch {}", json!({"spec": {"resources": null}})));
    assert!(refused.contains("spec.resources: Forbidden: pod-level resources cannot be removed"), "{refused}");
}

/// Waits until a container of `elastic` runs with that limit after so many restarts; returns its status.
fn until_resized(kubectl: &Kubectl<'_>, container: &str, resource: &str, limit: &str, restarts: u32) -> Value {
    eventually(&format!("{container} has {limit} of {resource}"), || {
        let status = kubectl.container("elastic", container);
        let has = status["restartCount"] == restarts && status["resources"]["limits"][resource] == limit;
        if has && status["state"]["running"].is_object() { Ok(status) } else { Err(status.to_string()) }
    })
}

/// The limits of a container's cgroup.
pub(super) fn limits_of(status: &Value) -> (String, String) {
    limits(&cgroups(container_id(status)))
}

/// The only Pods of a full node wait for CPU. Each wants as much as one of the Pods that leave has. Those that wait longest are neither the
/// most important ones nor those of the best class.
pub(super) fn room_goes_to_the_first_in_line(kubectl: &Kubectl<'_>) {
    kubectl.ok("delete pods --all --timeout=60s");
    let all = milli(&kubectl.field("nodes", "/items/0/status/allocatable/cpu"));
    let free = all - 5 * OWN;
    let growth = free / 3;
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "important"}, "value": 1000});
    kubectl.apply(&class.to_string()).ok();
    let requests = |cpu: i64| json!({"requests": {"cpu": format!("{cpu}m")}});
    let guaranteed = |cpu: i64| json!({"limits": {"cpu": format!("{cpu}m"), "memory": "16Mi"}});
    let pods = [
        pod("small", "", &requests(growth)),
        pod("large", "", &requests(free - growth)),
        pod("greedy", "important", &requests(OWN)),
        pod("old", "", &requests(OWN)),
        pod("young", "", &requests(OWN)),
        pod("guaranteed", "", &guaranteed(OWN)),
        pod("urgent", "important", &requests(OWN)),
        pod("idle", "", &json!({})),
    ];
    kubectl.apply(&json!({"apiVersion": "v1", "kind": "List", "items": pods}).to_string()).ok();
    kubectl.ok("wait --for=condition=Ready pods --all --timeout=60s");
    classes_have_their_shares(kubectl, OWN, free + 4 * OWN);

    let of_main = |resources: Value| json!([{"name": "main", "resources": resources}]);
    resize(kubectl, "greedy", &of_main(requests(all + 1_000)));
    let infeasible = format!("Node didn't have enough capacity: cpu, requested: {}, capacity: {all}", all + 1_000);
    until_pending(kubectl, "greedy", "Infeasible", &infeasible);
    let wanted = OWN + growth;
    let deferred = format!("Node didn't have enough resource: cpu, requested: {wanted}, used: {}, capacity: {all}", all - OWN);
    for name in ["old", "young", "guaranteed", "urgent"] {
        let mut resources = requests(wanted);
        if name == "guaranteed" {
            resources["limits"] = resources["requests"].clone();
        }
        resize(kubectl, name, &of_main(resources));
        until_pending(kubectl, name, "Deferred", &deferred);
    }

    kubectl.ok("delete pod small --timeout=60s");
    until_given(kubectl, "urgent", wanted);
    for name in ["old", "young", "guaranteed"] {
        assert_eq!(pending(kubectl, name)["reason"], "Deferred", "{name}");
    }
    kubectl.ok("delete pod large --timeout=60s");
    until_given(kubectl, "guaranteed", wanted);
    until_given(kubectl, "old", wanted);
    for (name, reason) in [("young", "Deferred"), ("greedy", "Infeasible")] {
        assert_eq!(pending(kubectl, name)["reason"], reason, "{name}");
        assert_eq!(cpu_of(kubectl, name), OWN, "{name}");
    }
    classes_have_their_shares(kubectl, wanted, 2 * OWN + 2 * wanted);
}

/// Pods lie in the cgroup of their class. It has the shares of what its Pods request together, and that of BestEffort the least.
fn classes_have_their_shares(kubectl: &Kubectl<'_>, guaranteed: i64, burstable: i64) {
    for (pod, class, cpu) in [("guaranteed", "guaranteed", guaranteed), ("old", "burstable", burstable), ("idle", "besteffort", 0)] {
        let wanted = u32::try_from(cpu * 1_024 / 1_000).expect("shares").max(2);
        let of_pod = cgroups(&kubectl.uid(pod));
        let classes: Vec<_> = of_pod.iter().filter_map(|dir| dir.parent().map(Path::to_path_buf)).collect();
        assert!(!classes.is_empty() && classes.iter().all(|dir| dir.ends_with(class)), "{pod}: {of_pod:?}");
        // A Pod that is gone or resized is counted so some moments after its status says so.
        eventually(&format!("{class} has {wanted} shares"), || has_shares(&classes, wanted));
    }
}

fn pod(name: &str, class: &str, resources: &Value) -> Value {
    let command = ["sleep", "1000000"];
    let container =
        json!({"name": "main", "image": "samples/tools:latest", "imagePullPolicy": "Never", "command": command, "resources": resources});
    let mut spec = json!({"terminationGracePeriodSeconds": 0, "containers": [container]});
    if !class.is_empty() {
        spec["priorityClassName"] = class.into();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

fn resize(kubectl: &Kubectl<'_>, pod: &str, containers: &Value) {
    let patch = json!({"spec": {"containers": containers}});
    kubectl.ok(&format!("patch pod {pod} --subresource=resize --patch {patch}"));
}

/// The condition of a resize that is not granted; null when there is none.
fn pending(kubectl: &Kubectl<'_>, pod: &str) -> Value {
    kubectl.condition(&format!("pod/{pod}"), "PodResizePending")
}

fn until_pending(kubectl: &Kubectl<'_>, pod: &str, reason: &str, message: &str) {
    eventually(&format!("the resize of {pod} is {reason}: {message}"), || {
        let pending = pending(kubectl, pod);
        if pending["reason"] == reason && pending["message"] == message { Ok(()) } else { Err(pending.to_string()) }
    });
}

/// Waits until a Pod has that CPU and no resize is pending.
fn until_given(kubectl: &Kubectl<'_>, pod: &str, cpu: i64) {
    eventually(&format!("{pod} has {cpu}m"), || {
        let (has, pending) = (cpu_of(kubectl, pod), pending(kubectl, pod));
        if has == cpu && pending.is_null() { Ok(()) } else { Err(format!("{has}m, {pending}")) }
    });
}

/// The CPU of a Pod's container by its status, in thousandths.
fn cpu_of(kubectl: &Kubectl<'_>, pod: &str) -> i64 {
    milli(&kubectl.container(pod, "main")["resources"]["requests"]["cpu"])
}

/// A quantity of CPU in thousandths; 0 without one.
fn milli(quantity: &Value) -> i64 {
    let text = quantity.as_str().unwrap_or("0");
    match text.strip_suffix('m') {
        Some(thousandths) => thousandths.parse().expect("thousandths"),
        None => 1_000 * text.parse::<i64>().expect("whole CPUs"),
    }
}
