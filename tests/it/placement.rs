//! kubectl with Pods that want to be together or apart. The nodes have no agent: a Pod is placed when it is bound.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, Net, eventually};

#[test]
fn pods_are_placed_by_affinity_and_spread() {
    let mut cluster = Cluster::prepared(Net::alone(), &["server", "--controllers=*,-node-lifecycle-controller"]);
    cluster.start();
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        kubectl.add_node(name, &json!({"kubernetes.io/hostname": name, "zone": zone}), "8", "8Gi");
    }
    replicas_stay_apart_and_wait_for_a_node(&kubectl);
    a_follower_waits_for_its_leader(&kubectl);
    replicas_spread_over_zones(&kubectl);
}

#[test]
fn the_scheduler_name_of_a_pod_chooses_how_it_is_placed() {
    let fit = json!({"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}});
    // The replicas of a Deployment are spread by default.
    let spread = json!({"name": "PodTopologySpread", "args": {"defaultingType": "List"}});
    let packing = json!({"schedulerName": "packing", "pluginConfig": [fit, spread]});
    let profiles = json!([{"schedulerName": "default-scheduler"}, packing]);
    let configuration = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": profiles});
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("scheduler.yaml");
    std::fs::write(&file, configuration.to_string()).expect("a file");
    let flag = format!("--scheduler-config={}", file.display());
    let mut cluster = Cluster::prepared(Net::alone(), &["server", "--controllers=*,-node-lifecycle-controller", &flag]);
    cluster.start();
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    for name in ["n1", "n2"] {
        kubectl.add_node(name, &json!({"kubernetes.io/hostname": name, "zone": "z"}), "8", "8Gi");
    }
    kubectl.apply(&deployment("first", 1, &json!({"nodeSelector": {"kubernetes.io/hostname": "n1"}}))).ok();
    until_on(&kubectl, "first", &["n1"]);
    kubectl.apply(&deployment("packed", 3, &json!({"schedulerName": "packing"}))).ok();
    until_on(&kubectl, "packed", &["n1", "n1", "n1"]);
    kubectl.apply(&deployment("other", 1, &json!({"schedulerName": "somebody-else"}))).ok();
    kubectl.apply(&deployment("plain", 1, &json!({}))).ok();
    until_on(&kubectl, "plain", &["n2"]);
    assert_eq!(nodes(&kubectl, "other"), [""; 0], "another scheduler's");
    eventually("each profile is the source of its events", || {
        let events = kubectl.json("get events --field-selector reason=Scheduled");
        let source = |event: &Value| {
            let name = event["involvedObject"]["name"].as_str().and_then(|name| name.split('-').next()).unwrap_or_default().to_owned();
            format!("{name} {}", event["source"]["component"].as_str().unwrap_or_default())
        };
        let sources: std::collections::BTreeSet<String> = events["items"].as_array().expect("events").iter().map(source).collect();
        let wanted = ["first default-scheduler", "packed packing", "plain default-scheduler"];
        if sources.iter().eq(&wanted) { Ok(()) } else { Err(format!("{sources:?}")) }
    });
}

fn deployment(name: &str, replicas: usize, spec: &Value) -> String {
    let mut spec = spec.clone();
    spec["containers"] = json!([{"name": "c", "image": "none"}]);
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": spec});
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}).to_string()
}

fn required(kind: &str, app: &str, key: &str) -> Value {
    let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key});
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

/// The nodes of an app's Pods, sorted; Pods without a node are left out.
fn nodes(kubectl: &Kubectl<'_>, app: &str) -> Vec<String> {
    let pods = kubectl.json(&format!("get pods -l app={app}"));
    let node = |pod: &Value| pod["spec"]["nodeName"].as_str().map(str::to_owned);
    let mut nodes: Vec<String> = pods["items"].as_array().expect("Pods").iter().filter_map(node).collect();
    nodes.sort();
    nodes
}

#[track_caller]
fn until_on(kubectl: &Kubectl<'_>, app: &str, wanted: &[&str]) {
    eventually(&format!("the Pods of {app} are on {wanted:?}"), || {
        let nodes = nodes(kubectl, app);
        if nodes == wanted { Ok(()) } else { Err(format!("{nodes:?}")) }
    });
}

#[track_caller]
fn until_explained(kubectl: &Kubectl<'_>, app: &str, message: &str) {
    eventually(&format!("a Pod of {app} says why it waits"), || {
        let pods = kubectl.json(&format!("get pods -l app={app}"));
        let conditions = pods["items"].as_array().expect("Pods").iter().flat_map(|pod| pod["status"]["conditions"].as_array());
        let messages: Vec<&Value> = conditions.flatten().map(|condition| &condition["message"]).collect();
        if messages.iter().any(|text| **text == message) { Ok(()) } else { Err(format!("{messages:?}")) }
    });
}

fn replicas_stay_apart_and_wait_for_a_node(kubectl: &Kubectl<'_>) {
    kubectl.apply(&deployment("apart", 4, &required("podAntiAffinity", "apart", "kubernetes.io/hostname"))).ok();
    let message = "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules. preemption: 0/3 nodes are available: 3 No \
                   preemption victims found for incoming pod.";
    until_explained(kubectl, "apart", message);
    until_on(kubectl, "apart", &["a1", "a2", "b1"]);
    kubectl.add_node("b2", &json!({"kubernetes.io/hostname": "b2", "zone": "b"}), "8", "8Gi");
    until_on(kubectl, "apart", &["a1", "a2", "b1", "b2"]);
    kubectl.ok("delete deployment apart");
}

fn a_follower_waits_for_its_leader(kubectl: &Kubectl<'_>) {
    kubectl.apply(&deployment("follower", 2, &required("podAffinity", "leader", "zone"))).ok();
    let message = "0/4 nodes are available: 4 node(s) didn't match pod affinity rules. preemption: 0/4 nodes are available: 4 Preemption \
                   is not helpful for scheduling.";
    until_explained(kubectl, "follower", message);
    kubectl.apply(&deployment("leader", 1, &json!({"nodeName": null, "nodeSelector": {"kubernetes.io/hostname": "b1"}}))).ok();
    eventually("the followers are in the leader's zone", || {
        let nodes = nodes(kubectl, "follower");
        if nodes.len() == 2 && nodes.iter().all(|node| node.starts_with('b')) { Ok(()) } else { Err(format!("{nodes:?}")) }
    });
}

fn replicas_spread_over_zones(kubectl: &Kubectl<'_>) {
    let selector = json!({"matchLabels": {"app": "spread"}});
    let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector});
    kubectl.apply(&deployment("spread", 6, &json!({"topologySpreadConstraints": [constraint]}))).ok();
    eventually("three Pods in each zone", || {
        let nodes = nodes(kubectl, "spread");
        let in_a = nodes.iter().filter(|node| node.starts_with('a')).count();
        if (nodes.len(), in_a) == (6, 3) { Ok(()) } else { Err(format!("{nodes:?}")) }
    });
    kubectl.ok("cordon b1");
    kubectl.ok("cordon b2");
    kubectl.ok("scale deployment spread --replicas=8");
    let message = "0/4 nodes are available: 2 node(s) didn't match pod topology spread constraints, 2 node(s) were unschedulable. \
                   preemption: 0/4 nodes are available: 2 No preemption victims found for incoming pod, 2 Preemption is not helpful for \
                   scheduling.";
    until_explained(kubectl, "spread", message);
    kubectl.ok("uncordon b2");
    eventually("four Pods in each zone", || {
        let nodes = nodes(kubectl, "spread");
        let in_a = nodes.iter().filter(|node| node.starts_with('a')).count();
        if (nodes.len(), in_a) == (8, 4) { Ok(()) } else { Err(format!("{nodes:?}")) }
    });
}
