//! When a Pod is ready, in which order its containers start and end, and what ends it: readiness gates, sidecars, deadlines, messages.

use serde_json::{Value, json};
use tests::kubectl::condition;
use tests::{Cluster, Kubectl, eventually};

/// `LOG` is a directory of the node.
const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: gated, labels: {app: gated}}
spec:
  terminationGracePeriodSeconds: 1
  readinessGates: [{conditionType: example.com/announced}]
  containers: [{name: web, image: "samples/web:latest", imagePullPolicy: Never, ports: [{containerPort: 8080}]}]
---
apiVersion: v1
kind: Service
metadata: {name: gated}
spec: {selector: {app: gated}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: sided}
spec:
  terminationGracePeriodSeconds: 30
  volumes: [{name: log, hostPath: {path: LOG}}]
  initContainers:
    - name: first
      image: samples/tools:latest
      imagePullPolicy: Never
      restartPolicy: Always
      command: [sh, -c, &serve "trap 'echo end $0 >> /log/all; exit 0' TERM; echo begin $0 >> /log/all; touch /log/$0-is-up; while ! rm /log/fail-$0 2> /dev/null; do sleep 0.1; done; echo fail $0 >> /log/all; exit 1", first]
      startupProbe: {exec: {command: [cat, /log/first-is-up]}, periodSeconds: 1}
      volumeMounts: &log [{name: log, mountPath: /log}]
    - name: once
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "echo once >> /log/all"]
      volumeMounts: *log
    - name: second
      image: samples/tools:latest
      imagePullPolicy: Never
      restartPolicy: Always
      command: [sh, -c, *serve, second]
      startupProbe: {exec: {command: [cat, /log/second-is-up]}, periodSeconds: 1}
      volumeMounts: *log
  containers:
    - name: main
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "trap 'sleep 1; echo end main >> /log/all; exit 0' TERM; echo begin main >> /log/all; while true; do sleep 0.1; done"]
      volumeMounts: *log
---
apiVersion: v1
kind: Pod
metadata: {name: late}
spec:
  activeDeadlineSeconds: 2
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "samples/web:latest", imagePullPolicy: Never}]
---
apiVersion: v1
kind: Pod
metadata: {name: teller}
spec:
  restartPolicy: Never
  containers:
    - name: log
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "echo why it failed; exit 3"]
      terminationMessagePolicy: FallbackToLogsOnError
    - name: file
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "echo output; echo from the file > /dev/termination-log; exit 3"]
      terminationMessagePolicy: FallbackToLogsOnError
    - name: good
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "echo output"]
      terminationMessagePolicy: FallbackToLogsOnError
"#;

#[test]
fn pods_are_ready_and_end_in_order() {
    let cluster = Cluster::up();
    let kubectl = cluster.kubectl();
    let dir = tempfile::tempdir().expect("a directory");
    kubectl.apply(&PODS.replace("LOG", &dir.path().display().to_string())).ok();
    gates_make_a_pod_ready(&kubectl);
    let log = || std::fs::read_to_string(dir.path().join("all")).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>();
    sidecars_begin_before_and_end_after(&kubectl, &log, &|name| {
        std::fs::write(dir.path().join(name), "").expect("written");
    });
    kubectl.until("pod/late", "/status/phase", "Failed");
    let why = ["reason", "message"].map(|field| kubectl.field("pod/late", &format!("/status/{field}")));
    assert_eq!(why, [json!("DeadlineExceeded"), json!("Pod was active on the node longer than the specified deadline")]);
    kubectl.until("pod/teller", "/status/phase", "Failed");
    let message = |index: u8| kubectl.field("pod/teller", &format!("/status/containerStatuses/{index}/state/terminated/message"));
    let messages: Vec<Value> = (0..3).map(message).collect();
    // In the order of the names: file, good, log.
    assert_eq!(messages, [json!("from the file\n"), Value::Null, json!("why it failed\n")]);
}

fn gates_make_a_pod_ready(kubectl: &Kubectl<'_>) {
    let until = |status: &str, reason: &str, message: &str| {
        eventually(&format!("Ready is {status}: {reason}"), || {
            let ready = kubectl.condition("pod/gated", "Ready");
            let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
            let is = (text("status"), text("reason"), text("message")) == (status.into(), reason.into(), message.into());
            let generation = kubectl.field("pod/gated", "/metadata/generation");
            let is_observed =
                ready["observedGeneration"] == generation && kubectl.field("pod/gated", "/status/observedGeneration") == generation;
            if is && is_observed { Ok(()) } else { Err(ready.to_string()) }
        });
    };
    let serves = |wanted: bool| {
        eventually(&format!("the endpoint's readiness is {wanted}"), || {
            let slices = kubectl.json("get endpointslices -l kubernetes.io/service-name=gated");
            let ready = slices.pointer("/items/0/endpoints/0/conditions/ready").cloned().unwrap_or_default();
            if ready == json!(wanted) { Ok(()) } else { Err(slices.to_string()) }
        });
    };
    let announce = |status: &str| {
        let patch = json!({"status": {"conditions": [{"type": "example.com/announced", "status": status}]}});
        kubectl.ok(&format!("patch pod gated --subresource=status --patch {patch}"));
    };
    until("False", "ReadinessGatesNotReady", "corresponding condition of pod readiness gate \"example.com/announced\" does not exist.");
    assert_eq!(kubectl.condition("pod/gated", "ContainersReady")["status"], "True");
    assert_eq!(kubectl.field("pod/gated", "/status/containerStatuses/0/ready"), json!(true));
    serves(false);
    announce("True");
    until("True", "", "");
    serves(true);
    conditions_are_of_the_newest_spec(kubectl);
    assert!(kubectl.ok("get pod gated -o wide").lines().nth(1).is_some_and(|line| line.trim_end().ends_with("1/1")));
    announce("False");
    until("False", "ReadinessGatesNotReady", "the status of pod readiness gate \"example.com/announced\" is not \"True\", but False");
    serves(false);
}

/// Those that Skiff writes. The gate's is the story's.
fn conditions_are_of_the_newest_spec(kubectl: &Kubectl<'_>) {
    kubectl.ok(r#"patch pod gated --patch {"spec":{"activeDeadlineSeconds":3600}}"#);
    eventually("all conditions of the changed Pod", || {
        let pod = kubectl.json("get pod gated");
        let observed = |name: &str| condition(&pod, name)["observedGeneration"] == 2;
        let names = ["ContainersReady", "Initialized", "PodReadyToStartContainers", "PodScheduled", "Ready"];
        let are_observed = pod["metadata"]["generation"] == 2 && names.into_iter().all(observed);
        if are_observed { Ok(()) } else { Err(format!("{:#}", pod["status"])) }
    });
}

fn sidecars_begin_before_and_end_after(kubectl: &Kubectl<'_>, log: &dyn Fn() -> Vec<String>, touch: &dyn Fn(&str)) {
    kubectl.until_ready("sided");
    let mut wanted = vec!["begin first", "once", "begin second", "begin main"];
    // A container without probes is ready before its first command has run.
    eventually("all have begun", || if log() == wanted { Ok(()) } else { Err(format!("{:?}", log())) });
    // A sidecar that fails begins again, and nothing else does.
    touch("fail-first");
    wanted.extend(["fail first", "begin first"]);
    eventually("the first sidecar has begun again", || if log() == wanted { Ok(()) } else { Err(format!("{:?}", log())) });
    kubectl.until("pod/sided", "/status/initContainerStatuses/0/restartCount", 1);
    for pointer in ["/status/initContainerStatuses/2/restartCount", "/status/containerStatuses/0/restartCount"] {
        assert_eq!(kubectl.field("pod/sided", pointer), json!(0), "{pointer}");
    }
    kubectl.until("pod/sided", "/status/initContainerStatuses/0/started", true);
    kubectl.ok("delete pod sided");
    wanted.extend(["end main", "end second", "end first"]);
    assert_eq!(log(), wanted);
}
