//! Debugging with the real `kubectl debug`: containers that are added to a running Pod, with and without the processes of
//! another container, and the debugger of a node.

use serde_json::{Value, json};
use tests::kubectl::is_waiting;
use tests::{Cluster, Kubectl, eventually};

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: app}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "trap 'exit 4' TERM; sleep 7654321 & wait"]
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "samples/web:latest", imagePullPolicy: Never, env: [{name: GREETING, value: "beside "}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: stuck}
spec:
  terminationGracePeriodSeconds: 1
  initContainers: [{name: first, image: "samples/tools:latest", imagePullPolicy: Never, command: [sh, -c, "sleep 1000000"]}]
  containers: [{name: main, image: "samples/web:latest", imagePullPolicy: Never}]
"#;

const TOOLS: &str = "--image=samples/tools:latest --image-pull-policy=Never";

#[test]
fn running_pods_and_nodes_are_debugged() {
    let mut cluster = Cluster::up();
    let kubectl = cluster.kubectl();
    kubectl.apply(PODS).ok();
    kubectl.until_ready("app");
    kubectl.until_ready("web");
    a_debugger_sees_the_processes_of_its_target(&kubectl);
    a_debugger_shares_the_network_of_a_webassembly_pod(&kubectl);
    a_pod_that_does_not_start_is_debugged(&kubectl);
    what_cannot_be_debugged_says_why(&kubectl);
    processes_of_the_node_are_for_those_who_may_see_them(&cluster);
    debuggers_survive_an_agent(&mut cluster);
    debuggers_end_with_their_target_and_their_pod(&cluster);
}

fn status(kubectl: &Kubectl<'_>, pod: &str, name: &str) -> Value {
    let statuses = kubectl.field(&format!("pod/{pod}"), "/status/ephemeralContainerStatuses");
    let found = statuses.as_array().and_then(|list| list.iter().find(|status| status["name"] == name).cloned());
    found.unwrap_or_default()
}

fn until_terminated(kubectl: &Kubectl<'_>, pod: &str, name: &str, code: i64) {
    eventually(&format!("{name} of {pod} ends with {code}"), || {
        let status = status(kubectl, pod, name);
        if status["state"]["terminated"]["exitCode"] == code { Ok(()) } else { Err(status.to_string()) }
    });
}

fn until_running(kubectl: &Kubectl<'_>, pod: &str, name: &str) {
    eventually(&format!("{name} of {pod} runs"), || {
        let status = status(kubectl, pod, name);
        if status["state"]["running"].is_object() { Ok(()) } else { Err(kubectl.run(&["describe", "pod", pod]).to_string()) }
    });
}

fn a_debugger_sees_the_processes_of_its_target(kubectl: &Kubectl<'_>) {
    let script = "cat /proc/1/cmdline; echo; ls -d /proc/[0-9]* | wc -l; exit 3\n";
    let said = kubectl.with_input(&format!("debug -i app {TOOLS} --target=main -c joined -- sh"), script);
    assert!(said.stdout.contains("sleep 7654321"), "{said}");
    let count = said.stdout.lines().find_map(|line| line.trim().parse::<u32>().ok());
    // The target's shell and its sleep, and the debugger's shell with its pipe: not the node's.
    assert!(count.is_some_and(|count| (3..8).contains(&count)), "{said}");
    until_terminated(kubectl, "app", "joined", 3);
    assert!(kubectl.ok("logs app -c joined").contains("sleep 7654321"));
    let described = kubectl.ok("describe pod app");
    assert!(described.contains("Ephemeral Containers:") && described.contains("Started"), "{described}");
    let alone = kubectl.with_input(&format!("debug -i app {TOOLS} -c alone -- sh"), "echo pid $$; exit 0\n");
    assert!(alone.stdout.contains("pid 1"), "without a target it has processes of its own: {alone}");
    until_terminated(kubectl, "app", "alone", 0);
    // It is not started again, and the Pod does not mind.
    assert_eq!(status(kubectl, "app", "joined")["restartCount"], 0);
    assert_eq!(kubectl.field("pod/app", "/status/containerStatuses/0/restartCount"), 0);
    let row = kubectl.ok("get pod app");
    assert!(row.contains("1/1") && row.contains("Running"), "{row}");
    // For a name that is there kubectl makes a patch without a change.
    kubectl.ok("debug app --image=samples/tools:latest -c joined -- true");
    until_terminated(kubectl, "app", "joined", 3);
}

fn a_debugger_shares_the_network_of_a_webassembly_pod(kubectl: &Kubectl<'_>) {
    let said = kubectl.with_input(&format!("debug -i web {TOOLS} -c tools -- sh"), "wget -qO- http://localhost:8080/x; exit 0\n");
    assert!(said.stdout.contains("Hello from WebAssembly! beside /x"), "{said}");
    // A WebAssembly image as the debugger of a Linux container.
    kubectl.ok("debug app --image=samples/job:latest --image-pull-policy=Never -c wasm -- job 5");
    until_terminated(kubectl, "app", "wasm", 5);
    assert_eq!(kubectl.ok("logs app -c wasm"), "ending with code 5\n");
}

/// Its init container is the reason.
fn a_pod_that_does_not_start_is_debugged(kubectl: &Kubectl<'_>) {
    eventually("the init container runs", || {
        let state = kubectl.field("pod/stuck", "/status/initContainerStatuses/0/state");
        if state["running"].is_object() { Ok(()) } else { Err(state.to_string()) }
    });
    let said = kubectl.with_input(&format!("debug -i stuck {TOOLS} --target=first -c look -- sh"), "cat /proc/1/cmdline; exit 0\n");
    assert!(said.stdout.contains("1000000"), "{said}");
    until_terminated(kubectl, "stuck", "look", 0);
    assert_eq!(kubectl.field("pod/stuck", "/status/phase"), "Pending");
}

fn what_cannot_be_debugged_says_why(kubectl: &Kubectl<'_>) {
    for (pod, image, target, reason, words) in [
        ("web", "samples/tools:latest", "main", "CreateContainerError", "container \"main\" runs WebAssembly"),
        ("app", "samples/job:latest", "main", "CreateContainerError", "a WebAssembly container cannot see the processes"),
        ("stuck", "samples/tools:latest", "main", "CreateContainerConfigError", "unable to find target container main"),
        ("app", "samples/absent:latest", "main", "ErrImageNeverPull", "is not present with pull policy of Never"),
    ] {
        let name = if image.contains("absent") { "absent" } else { "refused" };
        kubectl.ok(&format!("debug {pod} --image={image} --image-pull-policy=Never --target={target} -c {name} -- true"));
        eventually(&format!("the debugger of {pod} says {reason}"), || {
            let said = is_waiting(&status(kubectl, pod, name), reason, words);
            if said { Ok(()) } else { Err(kubectl.run(&["describe", "pod", pod]).to_string()) }
        });
    }
    let strange = kubectl.run(&["debug", "app", "--image=samples/tools:latest", "--target=nobody", "-c", "lost", "--", "true"]);
    assert!(!strange.succeeded() && strange.stderr.contains("targetContainerName: Not found: \"nobody\""), "{strange}");
}

fn processes_of_the_node_are_for_those_who_may_see_them(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let node = kubectl.ok("get nodes -o jsonpath={.items[0].metadata.name}");
    let look = format!("ls -d /proc/{} /host/proc; exit 0\n", cluster.pid());
    let said = kubectl.with_input(&format!("debug -i node/{node} {TOOLS} -- sh"), &look);
    assert!(said.stdout.contains(&format!("/proc/{}", cluster.pid())) && said.stdout.contains("/host/proc"), "{said}");
    let pod = |namespace: &str, image: &str| {
        let container = json!({"name": "c", "image": image, "imagePullPolicy": "Never"});
        let metadata = json!({"name": "on-node", "namespace": namespace});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"hostPID": true, "containers": [container]}})
    };
    kubectl.apply(&pod("default", "samples/web:latest").to_string()).ok();
    kubectl.until_waiting("on-node", "CreateContainerError", "hostPID is set");
    kubectl.ok("create namespace fenced");
    kubectl.ok("label namespace fenced pod-security.kubernetes.io/enforce=baseline");
    kubectl.until_usable("fenced");
    let refused = kubectl.apply(&pod("fenced", "samples/tools:latest").to_string());
    assert!(!refused.succeeded() && refused.stderr.contains("hostPID=true"), "{refused}");
}

fn debuggers_survive_an_agent(cluster: &mut Cluster) {
    cluster.kubectl().ok(&format!("debug app {TOOLS} --target=main -c stays -- sleep 1000000"));
    until_running(&cluster.kubectl(), "app", "stays");
    let before = status(&cluster.kubectl(), "app", "stays");
    let shims = cluster.shims();
    cluster.kill();
    cluster.start();
    assert_eq!(cluster.shims(), shims);
    let kubectl = cluster.kubectl();
    kubectl.until_ready("app");
    assert_eq!(status(&kubectl, "app", "stays"), before);
    let command = kubectl.ok("exec app -c stays -- cat /proc/1/cmdline");
    assert!(command.contains("7654321"), "{command:?}");
    for name in ["joined", "alone", "wasm"] {
        assert!(status(&kubectl, "app", name)["state"]["terminated"].is_object(), "{name} is not started again");
    }
}

fn debuggers_end_with_their_target_and_their_pod(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    // The command is in the namespace that ends.
    kubectl.run(&["exec", "app", "-c", "stays", "--", "kill", "-TERM", "1"]);
    until_terminated(&kubectl, "app", "stays", 137);
    kubectl.until("pod/app", "/status/containerStatuses/0/restartCount", 1);
    kubectl.until("pod/app", "/status/containerStatuses/0/lastState/terminated/exitCode", 4);
    kubectl.until_ready("app");
    assert_eq!(kubectl.field("pod/app", "/status/phase"), "Running");
    kubectl.ok(&format!("debug app {TOOLS} -c last -- sleep 1000000"));
    until_running(&kubectl, "app", "last");
    kubectl.ok("delete pods --all --wait --timeout=60s");
    eventually("no container is left", || {
        let shims = cluster.shims();
        if shims.is_empty() { Ok(()) } else { Err(format!("{shims:?}")) }
    });
}
