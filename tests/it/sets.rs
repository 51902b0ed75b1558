//! The story of StatefulSets and DaemonSets: names, order, host names, rollouts, and `kubectl rollout history` and `undo`,
//! which read ControllerRevisions.

use tests::{Cluster, Kubectl, Net};

const SETS: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: dbs}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: dbs
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: "samples/tools:latest", imagePullPolicy: Never, env: [{name: V, value: one}], command: [sh, -c, "sleep 1000"]}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: "samples/tools:latest", imagePullPolicy: Never, env: [{name: V, value: one}], command: [sh, -c, "sleep 1000"]}]
"#;

fn value(kubectl: &Kubectl<'_>, pod: &str) -> String {
    kubectl.run(&["exec", pod, "--", "sh", "-c", "echo $V"]).ok().trim().to_owned()
}

#[test]
fn sets_are_rolled_out_and_undone() {
    let mut cluster = Cluster::prepared(Net::alone(), &["up"]);
    cluster.start();
    cluster.load_samples();
    let kubectl = cluster.kubectl();
    kubectl.apply(SETS).ok();
    kubectl.ok("rollout status statefulset/db --timeout=60s");
    kubectl.ok("rollout status daemonset/agent --timeout=60s");
    assert_eq!(kubectl.ok("exec db-1 -- hostname").trim(), "db-1");
    let agent = || kubectl.ok("get pods -l app=agent -o name").trim().to_owned();

    for set in ["statefulset/db", "daemonset/agent"] {
        kubectl.ok(&format!("set env {set} V=two"));
        kubectl.ok(&format!("rollout status {set} --timeout=60s"));
    }
    assert_eq!((value(&kubectl, "db-0"), value(&kubectl, &agent())), ("two".to_owned(), "two".to_owned()));
    for set in ["statefulset/db", "daemonset/agent"] {
        let history = kubectl.ok(&format!("rollout history {set}"));
        assert!(history.contains("\n1 ") && history.contains("\n2 "), "{history}");
        kubectl.ok(&format!("rollout undo {set}"));
        kubectl.ok(&format!("rollout status {set} --timeout=60s"));
    }
    assert_eq!((value(&kubectl, "db-0"), value(&kubectl, &agent())), ("one".to_owned(), "one".to_owned()));

    kubectl.ok("scale statefulset/db --replicas=1");
    kubectl.ok("wait --for=delete pod/db-1 --timeout=60s");
    kubectl.ok("delete statefulset/db daemonset/agent --timeout=60s");
    kubectl.ok("wait --for=delete pod/db-0 --timeout=60s");
}
