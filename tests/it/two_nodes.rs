//! A control plane and two nodes, each in its own network namespace: Pods, Services, names, logs and exec between them.
//! Then one node's link is cut, its Pods move, and it comes back. At last it is drained.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use tests::{Cluster, Kubectl, Net, eventually};

/// Short times, so that a silent node is lost soon.
const TIMING: [&str; 2] = ["--node-lease-duration-seconds=4", "--node-status-update-frequency=1"];

/// One `skiff server`, two `skiff agent`s and the switch between them. The agents are dropped first.
struct Joined {
    agents: Vec<Cluster>,
    server: Cluster,
    _switch: Net,
}

impl Joined {
    fn up() -> Self {
        let mut nets = Net::joined(3).into_iter();
        let mut next = || nets.next().expect("a namespace");
        let mut server = Cluster::prepared(next(), &["server", "--node-monitor-grace-period=6"]);
        server.start();
        let flags = server.join_flags();
        let agents: Vec<Cluster> = ["a", "b"].iter().map(|name| agent(next(), name, &flags)).collect();
        let joined = Self { agents, server, _switch: next() };
        let kubectl = joined.kubectl();
        for name in ["a", "b"] {
            kubectl.until_condition(&format!("node/{name}"), "Ready", "True");
        }
        joined
    }

    fn kubectl(&self) -> Kubectl<'_> {
        self.server.kubectl()
    }
}

fn agent(net: Net, name: &str, [url, token]: &[String; 2]) -> Cluster {
    let name = format!("--node-name={name}");
    let mut args = vec!["agent", &name, url, token];
    args.extend(TIMING);
    let mut agent = Cluster::prepared(net, &args);
    agent.start();
    agent.load_samples();
    agent
}

/// Name, node and IP of the Pods with a label.
fn pods(kubectl: &Kubectl<'_>, label: &str) -> Vec<(String, String, String)> {
    let list = kubectl.json(&format!("get pods -l {label}"));
    let text = |pod: &Value, at: &str| pod.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    // Pods in deletion do not count.
    let stays = items.iter().filter(|pod| pod.pointer("/metadata/deletionTimestamp").is_none());
    stays.map(|pod| (text(pod, "/metadata/name"), text(pod, "/spec/nodeName"), text(pod, "/status/podIP"))).collect()
}

fn nodes_of(pods: &[(String, String, String)]) -> BTreeSet<&str> {
    pods.iter().map(|(_, node, _)| node.as_str()).collect()
}

const WORKLOAD: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      runtimeClassName: wasmtime
      tolerations:
        - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
        - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
      containers:
        - name: web
          image: samples/web:latest
          imagePullPolicy: Never
          ports: [{containerPort: 8080}]
          readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
---
apiVersion: v1
kind: Pod
metadata: {name: tools-a, labels: {app: tools}}
spec:
  nodeName: a
  runtimeClassName: runc
  terminationGracePeriodSeconds: 1
  containers:
    - {name: tools, image: "samples/tools:latest", imagePullPolicy: Never, command: ["sh", "-c", "echo at home on a; exec sleep 1000000"]}
---
apiVersion: v1
kind: Pod
metadata: {name: tools-b, labels: {app: tools}}
spec:
  nodeSelector: {kubernetes.io/hostname: b}
  runtimeClassName: runc
  terminationGracePeriodSeconds: 1
  containers:
    - {name: tools, image: "samples/tools:latest", imagePullPolicy: Never, command: ["sh", "-c", "echo at home on b; exec sleep 1000000"]}
"#;

#[test]
fn two_nodes_serve_each_other_and_a_lost_one_is_replaced_and_comes_back() {
    let cluster = Joined::up();
    let kubectl = cluster.kubectl();
    kubectl.apply(WORKLOAD).ok();
    kubectl.ok("rollout status deployment/web --timeout=60s");
    for pod in ["tools-a", "tools-b"] {
        kubectl.until_ready(pod);
    }
    let web = pods(&kubectl, "app=web");
    assert_eq!(nodes_of(&web), BTreeSet::from(["a", "b"]), "the replicas are spread: {web:?}");

    everything_is_reached_from_everywhere(&cluster, &web);

    // A cut link: the node is lost, and its Pods are replaced on a reachable node.
    let b = &cluster.agents[1];
    let shims_before = b.shims();
    b.net.set_uplink(false);
    kubectl.until_condition("node/b", "Ready", "Unknown");
    eventually("the taints of a lost node", || {
        let taints = kubectl.field("node/b", "/spec/taints").to_string();
        let both = ["NoSchedule", "NoExecute"].iter().all(|effect| taints.contains(effect));
        if both && taints.contains("node.kubernetes.io/unreachable") { Ok(()) } else { Err(taints) }
    });
    eventually("four ready replicas on the node that is left", || {
        let (web, ready) = (pods(&kubectl, "app=web"), kubectl.field("deployment/web", "/status/readyReplicas"));
        if web.len() == 4 && nodes_of(&web) == BTreeSet::from(["a"]) && ready == 4 { Ok(()) } else { Err(format!("{ready} {web:?}")) }
    });
    eventually("only what can be reached is behind the Service", || {
        let slices = kubectl.ok(
            "get endpointslices -l kubernetes.io/service-name=web -o jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].nodeName}",
        );
        if slices.split_whitespace().all(|node| node == "a") { Ok(()) } else { Err(slices) }
    });
    for _ in 0..8 {
        let answer = kubectl.ok("exec tools-a -- wget -qO- http://web/still");
        assert!(answer.contains("/still"), "{answer}");
    }
    // The node itself runs on: nobody told it to stop its containers.
    assert_eq!(b.shims(), shims_before);
    // The Pod that tolerates the loss for its default five minutes is still bound there.
    assert_eq!(kubectl.field("pod/tools-b", "/spec/nodeName"), "b");

    b.net.set_uplink(true);
    kubectl.until_condition("node/b", "Ready", "True");
    eventually("no taints", || {
        let taints = kubectl.field("node/b", "/spec/taints");
        if taints.is_null() { Ok(()) } else { Err(taints.to_string()) }
    });
    eventually("the replaced Pods are gone, and their containers", || {
        let all = kubectl.ok("get pods -l app=web -o name");
        let left = b.shims().len();
        if all.lines().count() == 4 && left == 1 { Ok(()) } else { Err(format!("{all} {left} shims on b")) }
    });
    kubectl.until_ready("tools-b");
    assert_eq!(kubectl.field("pod/tools-b", "/status/containerStatuses/0/restartCount"), 0, "it ran on all the while");

    // The node accepts Pods again, and all parts reach it as before.
    kubectl.ok("scale deployment/web --replicas=8");
    kubectl.ok("rollout status deployment/web --timeout=60s");
    let web = pods(&kubectl, "app=web");
    assert_eq!((web.len(), nodes_of(&web)), (8, BTreeSet::from(["a", "b"])));
    everything_is_reached_from_everywhere(&cluster, &web);

    a_drain_respects_the_budget_and_ends(&kubectl);
}

const BUDGET: &str = r#"
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec:
  minAvailable: 8
  selector: {matchLabels: {app: web}}
"#;

/// Eight replicas on two nodes, one of which is drained.
#[track_caller]
fn a_drain_respects_the_budget_and_ends(kubectl: &Kubectl<'_>) {
    let allowed_is = |wanted: u32| {
        eventually(&format!("the budget allows {wanted} disruptions"), || {
            let budget = kubectl.json("get poddisruptionbudget web");
            let seen = budget["status"]["observedGeneration"] == budget["metadata"]["generation"];
            if seen && budget["status"]["disruptionsAllowed"] == wanted { Ok(()) } else { Err(budget["status"].to_string()) }
        });
    };
    kubectl.apply(BUDGET).ok();
    allowed_is(0);
    let drain = ["drain", "b", "--ignore-daemonsets", "--pod-selector=app=web"];
    let refused = kubectl.run(&[&drain[..], &["--timeout=3s"]].concat());
    assert!(!refused.succeeded() && refused.stderr.contains("would violate the pod's disruption budget"), "{refused}");
    assert_eq!(pods(kubectl, "app=web").len(), 8);

    kubectl.ok(r#"patch poddisruptionbudget web --type=merge -p {"spec":{"minAvailable":6}}"#);
    allowed_is(2);
    let over = AtomicBool::new(false);
    let fewest_ready = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut fewest = u64::MAX;
            while !over.load(Ordering::Relaxed) {
                fewest = fewest.min(kubectl.field("deployment/web", "/status/readyReplicas").as_u64().unwrap_or_default());
            }
            fewest
        });
        let drained = kubectl.run(&[&drain[..], &["--timeout=90s"]].concat());
        over.store(true, Ordering::Relaxed);
        drained.ok();
        watching.join().expect("the watcher")
    });
    assert!((6..=8).contains(&fewest_ready), "{fewest_ready} were ready at a time");
    kubectl.ok("rollout status deployment/web --timeout=60s");
    assert_eq!(nodes_of(&pods(kubectl, "app=web")), BTreeSet::from(["a"]), "nothing of it is left on the drained node");
    eventually("the node records that it is closed", || {
        let reason = "reason=NodeNotSchedulable,involvedObject.kind=Node,involvedObject.name=b";
        let events = kubectl.ok(&format!("get events --field-selector {reason} -o jsonpath={{.items[*].message}}"));
        if events == "Node b status is now: NodeNotSchedulable" { Ok(()) } else { Err(events) }
    });
    kubectl.ok("uncordon b");
}

/// Reaches Pods by address, the Service by name, address and node port; then names, logs and exec.
#[track_caller]
fn everything_is_reached_from_everywhere(cluster: &Joined, web: &[(String, String, String)]) {
    let kubectl = cluster.kubectl();
    let service_ip = kubectl.field("service/web", "/spec/clusterIP");
    let service_ip = service_ip.as_str().expect("an address");
    for (pod, node) in [("tools-a", "a"), ("tools-b", "b")] {
        assert_eq!(kubectl.ok(&format!("logs {pod}")), format!("at home on {node}\n"));
        for (name, _, ip) in web {
            let answer = kubectl.until_ok(&format!("exec {pod} -- wget -qO- http://{ip}:8080/{name}"));
            assert!(answer.contains(name), "{answer}");
        }
        for _ in 0..8 {
            let answer = kubectl.until_ok(&format!("exec {pod} -- wget -qO- http://web/by-name"));
            assert!(answer.contains("/by-name"), "{answer}");
        }
        let seen = kubectl.until_ok(&format!("exec {pod} -- nslookup web.default.svc.cluster.local"));
        assert!(seen.contains(service_ip), "{seen}");
    }
    for (name, _, _) in web {
        kubectl.ok(&format!("logs {name}"));
    }
    for agent in &cluster.agents {
        let url = format!("http://{}:30080/by-node-port", agent.net.ip);
        let answer = cluster.server.net.run("curl", &["-sS", "--max-time", "5", &url]).ok();
        assert!(answer.contains("/by-node-port"), "{answer}");
    }
    // The API server through its Service. `nc` sends nothing, so the server accepts the connection and closes it.
    for pod in ["tools-a", "tools-b"] {
        kubectl.until_ok(&format!("exec {pod} -- nc -w 5 kubernetes.default.svc.cluster.local 443"));
    }
}
