//! What follows the end of a container: its restart rules, its own policy and that of its Pod, on the real kernel. A failed probe is
//! such an end.

use serde_json::json;
use tests::{Cluster, Kubectl, eventually};

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: second-try}
spec:
  restartPolicy: Never
  containers:
    - name: main
      image: samples/tools:latest
      imagePullPolicy: Never
      restartPolicy: Never
      restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]
      command: [sh, -c, "test -e /work/tried && exit 3; touch /work/tried; exit 42"]
      volumeMounts: [{name: work, mountPath: /work}]
  volumes: [{name: work, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: gang}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 600
  initContainers:
    - name: first
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "echo begun >> /work/log"]
      volumeMounts: [{name: work, mountPath: /work}]
  containers:
    - name: server
      image: samples/web:latest
      imagePullPolicy: Never
      readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
    - name: stubborn
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "trap '' TERM; while true; do sleep 1; done"]
      lifecycle: {preStop: {exec: {command: [sh, -c, "echo hook >> /work/log"]}}}
      volumeMounts: [{name: work, mountPath: /work}]
    - name: watcher
      image: samples/tools:latest
      imagePullPolicy: Never
      restartPolicy: Never
      restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]
      command: [sh, -c, "until test -e /work/fire; do sleep 0.1; done; rm /work/fire; exit 42"]
      volumeMounts: [{name: work, mountPath: /work}]
  volumes: [{name: work, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: own-policy}
spec:
  restartPolicy: Never
  containers:
    - {name: again, image: "samples/job:latest", imagePullPolicy: Never, args: ["5"], restartPolicy: OnFailure}
    - {name: once, image: "samples/job:latest", imagePullPolicy: Never, args: ["0"]}
---
apiVersion: v1
kind: Pod
metadata: {name: strict-init}
spec:
  initContainers: [{name: first, image: "samples/job:latest", imagePullPolicy: Never, args: ["3"], restartPolicy: Never}]
  containers: [{name: main, image: "samples/web:latest", imagePullPolicy: Never}]
---
apiVersion: v1
kind: Pod
metadata: {name: sick}
spec:
  restartPolicy: Always
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: samples/tools:latest
      imagePullPolicy: Never
      restartPolicy: Never
      command: [sleep, "1000000"]
      livenessProbe: {exec: {command: ["false"]}, periodSeconds: 1, failureThreshold: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: sick-never}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
    - name: lives
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sleep, "1000000"]
      livenessProbe: {exec: {command: ["false"]}, periodSeconds: 1, failureThreshold: 1}
    - name: starts
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sleep, "1000000"]
      startupProbe: {exec: {command: ["false"]}, periodSeconds: 1, failureThreshold: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: sick-once}
spec:
  restartPolicy: OnFailure
  terminationGracePeriodSeconds: 20
  volumes: [{name: work, emptyDir: {}}]
  containers:
    - name: polite
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "trap 'exit 0' TERM; test -e /work/tried && touch /work/well; touch /work/tried; while true; do sleep 0.1; done"]
      livenessProbe: {exec: {command: [test, -e, /work/well]}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 2}
      volumeMounts: [{name: work, mountPath: /work, subPath: polite}]
    - name: stubborn
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "test -e /work/tried && touch /work/well; touch /work/tried; exec sleep 1000000"]
      livenessProbe:
        exec: {command: [test, -e, /work/well]}
        periodSeconds: 1
        timeoutSeconds: 10
        failureThreshold: 2
        terminationGracePeriodSeconds: 1
      volumeMounts: [{name: work, mountPath: /work, subPath: stubborn}]
"#;

#[test]
fn containers_end_and_start_again_by_their_rules() {
    let cluster = Cluster::up();
    let kubectl = cluster.kubectl();
    kubectl.apply(PODS).ok();
    rules_go_before_policies(&kubectl);
    failed_probes_ask_the_pods_policy(&kubectl);
    a_rule_restarts_all_containers(&kubectl);
    wrong_rules_are_rejected(&kubectl);
}

fn rules_go_before_policies(kubectl: &Kubectl<'_>) {
    kubectl.until("pod/second-try", "/status/phase", "Failed");
    for (pod, pointer, wanted) in [
        ("second-try", "/status/containerStatuses/0/restartCount", json!(1)),
        ("second-try", "/status/containerStatuses/0/lastState/terminated/exitCode", json!(42)),
        ("second-try", "/status/containerStatuses/0/state/terminated/exitCode", json!(3)),
    ] {
        assert_eq!(kubectl.field(&format!("pod/{pod}"), pointer), wanted, "{pod}{pointer}");
    }
    kubectl.until("pod/own-policy", "/status/containerStatuses/0/state/waiting/reason", "CrashLoopBackOff");
    kubectl.until("pod/own-policy", "/status/containerStatuses/1/state/terminated/exitCode", 0);
    assert_eq!(kubectl.field("pod/own-policy", "/status/containerStatuses/1/restartCount"), 0);
    assert_eq!(kubectl.field("pod/own-policy", "/status/phase"), "Running");
    kubectl.until("pod/strict-init", "/status/phase", "Failed");
    let row = kubectl.ok("get pod strict-init");
    assert!(row.contains("Init:Error"), "{row}");
    // A failed probe asks the container's policy.
    kubectl.until("pod/sick", "/status/phase", "Failed");
    assert_eq!(kubectl.field("pod/sick", "/status/containerStatuses/0/restartCount"), 0);
    let described = kubectl.ok("describe pod sick");
    assert!(described.contains("Container main failed liveness probe") && !described.contains("will be restarted"), "{described}");
}

/// Under `OnFailure` another instance follows, also after one that ended with 0 when it got the signal.
fn failed_probes_ask_the_pods_policy(kubectl: &Kubectl<'_>) {
    kubectl.until("pod/sick-never", "/status/phase", "Failed");
    let described = kubectl.ok("describe pod sick-never");
    for (index, container, probe) in [(0, "lives", "liveness"), (1, "starts", "startup")] {
        let status = kubectl.field("pod/sick-never", &format!("/status/containerStatuses/{index}"));
        let ended = &status["state"]["terminated"];
        assert_eq!((&status["name"], &status["restartCount"]), (&json!(container), &json!(0)), "{status}");
        assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(137), &json!("Error")), "{status}");
        assert!(described.contains(&format!("Container {container} failed {probe} probe")), "{described}");
    }
    assert!(!described.contains("will be restarted"), "{described}");

    for (index, container, code, reason) in [(0, "polite", 0, "Completed"), (1, "stubborn", 137, "Error")] {
        kubectl.until("pod/sick-once", &format!("/status/containerStatuses/{index}/restartCount"), 1);
        let status = kubectl.field("pod/sick-once", &format!("/status/containerStatuses/{index}"));
        let ended = &status["lastState"]["terminated"];
        assert_eq!(status["name"], container);
        assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(code), &json!(reason)), "{status}");
    }
    kubectl.until_ready("sick-once");
    assert_eq!(kubectl.field("pod/sick-once", "/status/phase"), "Running");
    let described = kubectl.ok("describe pod sick-once");
    assert!(described.contains("Container polite failed liveness probe, will be restarted"), "{described}");
}

fn a_rule_restarts_all_containers(kubectl: &Kubectl<'_>) {
    kubectl.until_ready("gang");
    let condition = || kubectl.condition("pod/gang", "AllContainersRestarting")["status"].take();
    assert_eq!(condition(), "False");
    let began = std::time::Instant::now();
    kubectl.ok("exec gang -c stubborn -- touch /work/fire");
    for container in 0..3 {
        kubectl.until("pod/gang", &format!("/status/containerStatuses/{container}/restartCount"), 1);
    }
    kubectl.until_ready("gang");
    // Not the Pod's grace period, although one container ignores the stop signal.
    assert!(began.elapsed() < std::time::Duration::from_secs(300), "{:?}", began.elapsed());
    assert_eq!(kubectl.ok("exec gang -c stubborn -- cat /work/log"), "begun\nbegun\n", "the init container ran again, the hook did not");
    assert_eq!(kubectl.field("pod/gang", "/status/initContainerStatuses/0/restartCount"), 1);
    for container in 0..3 {
        let last = kubectl.field("pod/gang", &format!("/status/containerStatuses/{container}/lastState/terminated"));
        assert_eq!((&last["exitCode"], &last["reason"]), (&json!(137), &json!("RestartingAllContainers")), "{last}");
    }
    let row = kubectl.ok("get pod gang");
    assert!(row.contains("3/3") && row.contains("Running"), "{row}");
    assert_eq!(condition(), "False");
    // The second time the container with the rule waits in its back-off, and the others run.
    kubectl.ok("exec gang -c stubborn -- touch /work/fire");
    eventually("the watcher is in back-off beside containers that run", || {
        let statuses = kubectl.field("pod/gang", "/status/containerStatuses");
        let waits = statuses[2]["state"]["waiting"]["reason"] == "CrashLoopBackOff" && statuses[0]["restartCount"].as_u64() >= Some(2);
        if waits && statuses[0]["state"]["running"].is_object() {
            return Ok(());
        }
        // On a busy machine the others may need longer than the back-off takes. The next one is twice as long.
        if statuses[2]["state"]["running"].is_object() {
            kubectl.run(&["exec", "gang", "-c", "stubborn", "--", "touch", "/work/fire"]);
        }
        Err(statuses.to_string())
    });
    kubectl.ok("delete pod gang --grace-period=1 --wait");
}

fn wrong_rules_are_rejected(kubectl: &Kubectl<'_>) {
    for (container, wanted) in [
        (
            json!({"restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]}),
            "spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
        ),
        (
            json!({"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart"}]}),
            "spec.containers[0].restartPolicyRules[0].exitCodes: Required value: must be specified",
        ),
        (
            json!({"restartPolicy": "Never", "restartPolicyRules": [{"action": "Stop", "exitCodes": {"operator": "Equals", "values": [1]}}]}),
            "spec.containers[0].restartPolicyRules[0].action: Unsupported value: \"Stop\": supported values: \"Restart\", \"RestartAllContainers\"",
        ),
    ] {
        let mut whole = json!({"name": "c", "image": "i"});
        whole.as_object_mut().expect("an object").extend(container.as_object().expect("an object").clone());
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "wrong"}, "spec": {"containers": [whole]}});
        let refused = kubectl.apply(&pod.to_string()).fails();
        assert!(refused.contains(wanted), "{refused}");
    }
}
