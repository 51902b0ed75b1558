//! kubectl and an extender of the scheduler as a process of its own: the example of the documentation. The nodes have no agent.

use std::process::{Child, Stdio};

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, Net, cluster, eventually};

const PAGE: &str = include_str!("../../docs/nodes.md");

/// The extender, which ends with the story.
struct Extender(Child);

impl Extender {
    fn start(net: &Net, script: &std::path::Path) -> Self {
        let mut python = net.command(&cluster::python().display().to_string());
        python.arg(script).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(python.spawn().expect("python"))
    }
}

impl Drop for Extender {
    fn drop(&mut self) {
        // It may have ended.
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

#[test]
fn an_extender_chooses_the_nodes_of_its_pods() {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, script) = (dir.path().join("scheduler.yaml"), dir.path().join("extender.py"));
    std::fs::write(&file, example("yaml")).expect("a file");
    std::fs::write(&script, example("python")).expect("a file");
    let flag = format!("--scheduler-config={}", file.display());
    let mut cluster = Cluster::prepared(Net::alone(), &["server", "--controllers=*,-node-lifecycle-controller", &flag]);
    cluster.start();
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    ["cpu-1", "gpu-1", "gpu-2"].iter().for_each(|name| kubectl.add_node(name, &json!({"kubernetes.io/hostname": name}), "8", "8Gi"));

    kubectl.apply(&pod("waits", true)).ok();
    until_it_says(&kubectl, "waits", "SchedulerError", "Post \"http://127.0.0.1:8888/scheduler/filter\": Connection refused");
    kubectl.apply(&pod("plain", false)).ok();
    until_on(&kubectl, "plain", |_| true);
    let extender = Extender::start(&cluster.net, &script);
    until_on(&kubectl, "waits", |node| node == "gpu-2");
    kubectl.apply(&pod("train", true)).ok();
    until_on(&kubectl, "train", |node| node == "gpu-2");

    kubectl.ok("cordon gpu-1");
    kubectl.ok("cordon gpu-2");
    kubectl.apply(&pod("late", true)).ok();
    until_it_says(&kubectl, "late", "Unschedulable", "0/3 nodes are available: 1 no GPU, 2 node(s) were unschedulable. preemption: ");
    kubectl.ok("uncordon gpu-1");
    until_on(&kubectl, "late", |node| node == "gpu-1");
    drop(extender);
    let metrics = kubectl.ok("get --raw /metrics");
    let counted = "skiff_scheduler_extender_call_duration_seconds_count{extender=\"http://127.0.0.1:8888/scheduler\",result=\"success\",verb=\"prioritize\"}";
    assert!(metrics.contains(counted), "{metrics}");
}

/// The example of that language in the section about extenders.
fn example(language: &str) -> &'static str {
    let section = PAGE.split("### Extenders\n").nth(1).expect("a section");
    let text = section.split(&format!("```{language}\n")).nth(1).expect("an example");
    text.split("```").next().expect("its end")
}

fn pod(name: &str, wants_gpu: bool) -> String {
    let resources = if wants_gpu { json!({"limits": {"example.com/gpu": "1"}}) } else { json!({}) };
    let container = json!({"name": "c", "image": "none", "resources": resources});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}).to_string()
}

#[track_caller]
fn until_on(kubectl: &Kubectl<'_>, name: &str, is_wanted: impl Fn(&str) -> bool) {
    eventually(&format!("the Pod {name} has its node"), || {
        let node = kubectl.field(&format!("pod/{name}"), "/spec/nodeName");
        if node.as_str().is_some_and(&is_wanted) { Ok(()) } else { Err(node.to_string()) }
    });
}

#[track_caller]
fn until_it_says(kubectl: &Kubectl<'_>, name: &str, reason: &str, text: &str) {
    eventually(&format!("the Pod {name} says why it waits"), || {
        let conditions = kubectl.field(&format!("pod/{name}"), "/status/conditions");
        let says = |one: &Value| one["reason"] == reason && one["message"].as_str().is_some_and(|message| message.contains(text));
        if conditions.as_array().is_some_and(|all| all.iter().any(says)) { Ok(()) } else { Err(conditions.to_string()) }
    });
}
