//! Passes over plain values: the plan's writes change the Pods.

use k8s_openapi::api::apps::v1::DaemonSetStatus;
use serde_json::{Value, json};

use super::super::status;
use super::*;
use crate::revisions::REVISION_LABEL;

struct World {
    set: DaemonSet,
    hash: &'static str,
    nodes: Vec<Arc<Node>>,
    pods: Vec<Pod>,
    made: i64,
}

fn node(name: &str, more: Value) -> Arc<Node> {
    let mut object = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
    meta::overlay(&mut object, &more);
    Arc::new(serde_json::from_value(object).expect("a Node"))
}

impl World {
    fn new(nodes: &[&str], spec: Value) -> Self {
        let mut whole = json!({"selector": {"matchLabels": {"app": "d"}}, "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": []}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}});
        meta::overlay(&mut whole, &spec);
        let set = json!({"metadata": {"name": "d", "namespace": "ns", "uid": "d", "generation": 1}, "spec": whole});
        let nodes = nodes.iter().map(|name| node(name, json!({}))).collect();
        Self { set: serde_json::from_value(set).expect("a DaemonSet"), hash: "h1", nodes, pods: Vec::new(), made: 0 }
    }

    fn with<T>(&self, backing_off: &dyn Fn(&str) -> Option<Duration>, done: impl FnOnce(&Snapshot<'_>) -> T) -> T {
        let pods: Vec<_> = self.pods.iter().cloned().map(Arc::new).collect();
        let assignment = assign(&self.set, &self.nodes, &pods);
        let now = Timestamp::from_second(1_000_000).expect("in range");
        done(&Snapshot { set: &self.set, hash: self.hash, assignment: &assignment, backing_off, now })
    }

    fn status(&self) -> DaemonSetStatus {
        self.with(&|_| None, |snapshot| status::status(snapshot, 0, Some(1)))
    }

    /// One pass; returns what it wrote.
    fn pass(&mut self) -> Vec<String> {
        let plan = self.with(&|_| None, plan);
        let mut written = Vec::new();
        for node in plan.create {
            self.made += 1;
            let mut pod = template::pod(&self.set, &node, self.hash);
            pod.metadata.name = Some(format!("{node}-{}", self.made));
            pod.metadata.creation_timestamp = Some(meta::whole_seconds(Timestamp::from_second(self.made).expect("in range")));
            written.push(format!("create {node}-{}", self.made));
            self.pods.push(pod);
        }
        for pod in plan.delete {
            let name = meta::name(&pod.metadata).to_owned();
            written.push(format!("delete {name}"));
            self.end(&name);
        }
        written
    }

    fn pod(&mut self, name: &str) -> &mut Pod {
        self.pods.iter_mut().find(|pod| meta::name(&pod.metadata) == name).expect("a Pod")
    }

    fn run(&mut self, name: &str, status: Value) {
        self.pod(name).status = Some(serde_json::from_value(status).expect("a status"));
    }

    fn ready(&mut self, name: &str) {
        let since = Timestamp::from_second(999_990).expect("in range").to_string();
        self.run(name, json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]}));
    }

    fn all_ready(&mut self) {
        for name in self.pods.iter().map(|pod| meta::name(&pod.metadata).to_owned()).collect::<Vec<_>>() {
            self.ready(&name);
        }
    }

    fn end(&mut self, name: &str) {
        self.pod(name).metadata.deletion_timestamp = Some(meta::whole_seconds(Timestamp::UNIX_EPOCH));
    }

    fn gone(&mut self) {
        self.pods.retain(|pod| !meta::is_deleting(&pod.metadata));
    }
}

#[test]
fn each_node_that_fits_has_one_pod() {
    let mut world = World::new(&["a", "b"], json!({}));
    assert_eq!(world.pass(), ["create a-1", "create b-2"]);
    assert_eq!(world.pass(), [""; 0]);
    world.nodes.push(node("c", json!({})));
    assert_eq!(world.pass(), ["create c-3"]);
    world.end("a-1");
    assert_eq!(world.pass(), [""; 0], "it is not gone yet");
    world.gone();
    assert_eq!(world.pass(), ["create a-4"]);
    let mut twin = world.pod("b-2").clone();
    twin.metadata.name = Some("b-9".to_owned());
    twin.spec.as_mut().expect("a spec").node_name = Some("b".to_owned());
    world.pods.push(twin);
    assert_eq!(world.pass(), ["delete b-2"], "the bound one stays");
    world.nodes.retain(|node| meta::name(&node.metadata) != "a");
    assert_eq!(world.pass(), ["delete a-4"], "it waits for a node that is gone");
}

#[test]
fn a_pod_names_its_node_and_tolerates_the_nodes_troubles() {
    let own = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}}});
    let world = World::new(&[], json!({"template": {"spec": {"hostNetwork": true, "affinity": own}}}));
    let pod = template::pod(&world.set, "n1", "h");
    assert_eq!(meta::label(&pod.metadata, REVISION_LABEL), Some("h"));
    assert_eq!(template::target_node(&pod), Some("n1"));
    let spec = pod.spec.expect("a spec");
    let wanted = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}}});
    assert_eq!(json!(spec.affinity), wanted);
    let keys: Vec<_> =
        spec.tolerations.iter().flatten().filter_map(|one| one.key.as_deref()?.strip_prefix("node.kubernetes.io/")).collect();
    assert_eq!(
        keys,
        ["not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable", "network-unavailable"]
    );
}

#[test]
fn nodes_are_judged_as_the_scheduler_does() {
    let taint = |effect: &str| json!({"spec": {"taints": [{"key": "k", "effect": effect}]}});
    let selector = json!({"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}});
    let tolerating = json!({"template": {"spec": {"tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute"}]}}});
    let unready = json!({"spec": {"unschedulable": true, "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}});
    for (spec, more, runs, stays) in [
        (json!({}), json!({}), true, true),
        (json!({}), unready, true, true),
        (json!({}), taint("NoSchedule"), false, true),
        (json!({}), taint("NoExecute"), false, false),
        (json!({}), taint("PreferNoSchedule"), true, true),
        (tolerating.clone(), taint("NoExecute"), true, true),
        (tolerating, taint("NoSchedule"), false, true),
        (selector.clone(), json!({}), false, false),
        (selector, json!({"metadata": {"labels": {"disk": "ssd"}}}), true, true),
        (json!({"template": {"spec": {"nodeName": "other"}}}), json!({}), false, false),
    ] {
        let world = World::new(&[], spec.clone());
        let verdict = Judge::new(&world.set).verdict(&node("n", more.clone()));
        assert_eq!((verdict.runs, verdict.stays), (runs, stays), "{spec} {more}");
    }
}

#[test]
fn a_pod_leaves_a_node_that_is_not_for_it_any_more() {
    let mut world = World::new(&["a"], json!({}));
    world.pass();
    world.ready("a-1");
    world.nodes = vec![node("a", json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}))];
    assert_eq!(world.pass(), [""; 0], "it was there before the taint");
    let status = world.status();
    assert_eq!((status.desired_number_scheduled, status.number_misscheduled, status.current_number_scheduled), (0, 1, 0));
    world.nodes = vec![node("a", json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}))];
    assert_eq!(world.pass(), ["delete a-1"]);
}

#[test]
fn a_failed_pod_waits_for_its_back_off() {
    let mut world = World::new(&["a", "b"], json!({}));
    world.pass();
    world.run("a-1", json!({"phase": "Failed"}));
    world.run("b-2", json!({"phase": "Succeeded"}));
    let plan = world.with(&|node| (node == "a").then_some(Duration::from_secs(3)), plan);
    assert_eq!(plan.look_again, Some(Duration::from_secs(3)));
    assert_eq!(plan.ended.iter().map(|ended| (ended.node.as_str(), ended.failed)).collect::<Vec<_>>(), [("b", false)]);
    assert_eq!(world.pass(), ["delete a-1", "delete b-2"]);
    assert_eq!(world.pass(), ["create a-3", "create b-4"], "Pods that ended and are being deleted do not count");
}

#[test]
fn an_update_replaces_one_node_after_the_other() {
    let mut world = World::new(&["a", "b", "c"], json!({}));
    world.pass();
    world.all_ready();
    world.hash = "h2";
    assert_eq!(world.pass(), ["delete a-1"]);
    assert_eq!(world.pass(), [""; 0], "a has no Pod");
    world.gone();
    assert_eq!(world.pass(), ["create a-4"]);
    assert_eq!(world.pass(), [""; 0], "its new Pod is not available");
    world.ready("a-4");
    let status = world.status();
    assert_eq!((status.updated_number_scheduled, status.number_available, status.number_unavailable), (Some(1), Some(3), None));
    assert_eq!(world.pass(), ["delete b-2"]);
    world.gone();
    world.pass();
    world.ready("b-5");
    world.run("c-3", json!({"phase": "Running"}));
    world.run("b-5", json!({"phase": "Running"}));
    assert_eq!(world.pass(), ["delete c-3"], "it is not available anyway");
}

#[test]
fn on_delete_waits_for_the_user() {
    let mut world = World::new(&["a"], json!({"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}));
    world.pass();
    world.all_ready();
    world.hash = "h2";
    assert_eq!(world.pass(), [""; 0]);
    world.end("a-1");
    world.gone();
    world.pass();
    assert_eq!(meta::label(&world.pod("a-2").metadata, REVISION_LABEL), Some("h2"));
}

#[test]
fn a_surging_update_starts_new_pods_before_old_ones_end() {
    let surge = json!({"minReadySeconds": 5, "updateStrategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "50%"}}});
    let mut world = World::new(&["a", "b", "c"], surge);
    world.pass();
    world.all_ready();
    world.hash = "h2";
    assert_eq!(world.pass(), ["create a-4", "create b-5"]);
    assert_eq!(world.pass(), [""; 0], "neither is available");
    world.ready("a-4");
    assert_eq!(world.pass(), ["delete a-1"]);
    world.gone();
    assert_eq!(world.pass(), ["create c-6"]);
    world.run("b-2", json!({"phase": "Running"}));
    assert_eq!(world.pass(), ["delete b-2"], "the old Pod is not ready");
    world.end("c-3");
    world.end("c-6");
    assert_eq!(world.pass(), ["create c-7"], "while it surges it does not wait for what ends");
}

#[test]
fn a_pod_is_available_after_its_time() {
    let mut world = World::new(&["a"], json!({"minReadySeconds": 20}));
    world.pass();
    world.ready("a-1");
    let status = world.status();
    assert_eq!((status.number_ready, status.number_available, status.number_unavailable), (1, None, Some(1)));
}

#[test]
fn pods_have_the_generation_of_the_template_and_are_updated_by_it() {
    let mut world = World::new(&["a"], json!({}));
    world.set.metadata.annotations = Some(BTreeMap::from([("deprecated.daemonset.template.generation".to_owned(), "3".to_owned())]));
    world.pass();
    assert_eq!(meta::label(&world.pod("a-1").metadata, "pod-template-generation"), Some("3"));
    world.all_ready();
    world.hash = "h2";
    assert_eq!(world.pass(), [""; 0], "the generation is the same");
    world.set.metadata.annotations = Some(BTreeMap::from([("deprecated.daemonset.template.generation".to_owned(), "4".to_owned())]));
    assert_eq!(world.pass(), ["delete a-1"]);
    world.set.metadata.annotations = Some(BTreeMap::from([("deprecated.daemonset.template.generation".to_owned(), "x".to_owned())]));
    world.gone();
    world.pass();
    assert_eq!(meta::label(&world.pod("a-2").metadata, "pod-template-generation"), None, "it is unreadable");
}

/// Upstream's `TestDaemonSetUpdatesSomeOldPodsNotReady` and its neighbours.
#[test]
fn old_pods_that_are_not_available_count_as_unavailable() {
    let mut world = World::new(&["a", "b", "c"], json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}}));
    world.pass();
    world.all_ready();
    world.run("b-2", json!({"phase": "Running"}));
    world.hash = "h2";
    assert_eq!(world.pass(), ["delete b-2", "delete a-1"], "one of the two is taken by b");
}

fn no_schedule(name: &str) -> Arc<Node> {
    node(name, json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}))
}

#[test]
fn an_update_reaches_pods_on_nodes_that_get_none_any_more() {
    let mut world = World::new(&["a", "b"], json!({}));
    world.pass();
    world.all_ready();
    world.hash = "h2";
    world.nodes = vec![no_schedule("a"), node("b", json!({}))];
    assert_eq!(world.pass(), ["delete a-1"]);
    world.gone();
    assert_eq!(world.pass(), ["delete b-2"], "a needs no Pod");
}

/// Upstream's `TestDaemonSetUpdatesPodsNotMatchTainstWithMaxSurge`.
#[test]
fn a_surging_update_leaves_a_node_when_enough_pods_are_available() {
    let mut world = World::new(&["a", "b"], json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}}));
    world.pass();
    world.all_ready();
    world.hash = "h2";
    world.nodes = vec![no_schedule("a"), node("b", json!({})), node("c", json!({}))];
    assert_eq!(world.pass(), ["create c-3"]);
    assert_eq!(world.pass(), ["create b-4"], "the Pod of a stays: c has none that is available");
    world.ready("c-3");
    assert_eq!(world.pass(), ["delete a-1"], "two are wanted, and b and c have them");
    let mut world = World::new(&["a", "b"], json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}}));
    world.pass();
    world.hash = "h2";
    world.nodes = vec![no_schedule("a"), node("b", json!({}))];
    assert_eq!(world.pass(), ["create b-3", "delete a-1"], "it is not available");
}
