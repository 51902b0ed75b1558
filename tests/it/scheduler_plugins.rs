//! kubectl with plugins of the scheduler: the sample in C, from a file and from a private registry, guests that fail in every way,
//! versions that replace each other, a configuration that changes. The nodes have no agent: a Pod is placed when it is bound.

#[path = "../../sched/wasm/tests/plugins/guests.rs"]
#[allow(dead_code, reason = "the plugins' own tests use the rest")]
mod guests;

use std::path::Path;

use serde_json::{Value, json};
use tests::cluster::sample;
use tests::{Cluster, Kubectl, Net, eventually};

use crate::registry::{LOCKED, PASSWORDS, Registry};
use guests::{BOMB, Guest, PERMIT_PAIRS, SCORE_LABELS, SPIN};

const CHANGING: &str = "plugins/changing:v1";

#[test]
fn plugins_choose_nodes_and_their_failures_stay_theirs() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("scheduler.yaml");
    let registry_config = dir.path().join("registry.json");
    let write = |label: &str| std::fs::write(&file, configuration(&registry_config, label).to_string()).expect("writes");
    write("gpu.example.com/load");
    let flag = format!("--scheduler-config={}", file.display());
    let mut cluster = Cluster::prepared(Net::alone(), &["server", "--controllers=*,-node-lifecycle-controller", &flag]);
    cluster.skiff(&["image", "import", "plugins/gpu-load:v1", &sample("gpu-load.wasm")]).ok();
    import(&cluster, dir.path(), "plugins/pairs:v1", &Guest { permit: Some(PERMIT_PAIRS), ..Guest::default() }.component());
    let registry = Registry::start(&cluster.net, LOCKED, Some(PASSWORDS));
    registry.push_wasm(&cluster.net, "gpu-load", "gpu-load.wasm");
    cluster.start();
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    for (name, load) in [("n1", "80"), ("n2", "5"), ("n3", "40")] {
        kubectl.add_node(name, &json!({"gpu.example.com/load": load}), "8", "8Gi");
    }
    pods_go_to_the_node_with_the_lowest_load(&kubectl);
    a_private_registry_gets_the_password_of_the_file(&cluster, &registry_config);
    a_group_waits_until_it_is_whole(&kubectl);
    failures_have_the_effect_of_their_policy(&cluster, dir.path());
    new_arguments_are_used_without_a_start(&kubectl, &file, &write);
    a_broken_version_leaves_the_one_before_in_use(&cluster, dir.path());
}

fn configuration(registry_config: &Path, label: &str) -> Value {
    let plugin = |name: &str, image: &str, policy: &str| {
        let args = json!({"apiVersion": "scheduler.skiff/v1alpha1", "kind": "WasmPluginArgs", "image": image, "imagePullPolicy": "Never",
            "refreshInterval": "1s", "failurePolicy": policy, "args": {"label": label}});
        json!([{"name": name, "args": args}])
    };
    let profile = |name: &str, plugins: Value, config: Value| json!({"schedulerName": name, "plugins": plugins, "pluginConfig": config});
    let mut private = plugin("Private", &format!("{LOCKED}/gpu-load:v1"), "Fail");
    private[0]["args"]["imagePullPolicy"] = json!("Always");
    private[0]["args"]["registryConfigFile"] = json!(registry_config);
    let everywhere = |name: &str| json!({"multiPoint": {"enabled": [{"name": name}]}});
    let by_load = json!({"score": {"enabled": [{"name": "GpuLoad", "weight": 20}]}});
    json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [
        profile("gpu", by_load, plugin("GpuLoad", "plugins/gpu-load:v1", "Fail")),
        profile("private", everywhere("Private"), private),
        profile("pairs", everywhere("Pairs"), plugin("Pairs", "plugins/pairs:v1", "Fail")),
        profile("strict", everywhere("Strict"), plugin("Strict", CHANGING, "Fail")),
        profile("lenient", everywhere("Lenient"), plugin("Lenient", CHANGING, "Ignore")),
    ]})
}

fn import(cluster: &Cluster, dir: &Path, image: &str, bytes: &[u8]) {
    let file = dir.join("plugin.wasm");
    std::fs::write(&file, bytes).expect("writes");
    cluster.skiff(&["image", "import", image, &file.display().to_string()]).ok();
}

fn create(kubectl: &Kubectl<'_>, name: &str, scheduler: &str) {
    let spec = json!({"schedulerName": scheduler, "containers": [{"name": "c", "image": "none"}]});
    kubectl.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).to_string()).ok();
}

#[track_caller]
fn until_bound(kubectl: &Kubectl<'_>, name: &str) {
    eventually(&format!("{name} is bound"), || {
        let node = kubectl.json(&format!("get pod {name}"))["spec"]["nodeName"].clone();
        if node.is_string() { Ok(()) } else { Err(format!("{node}")) }
    });
}

/// Waits until the condition `PodScheduled` has the reason and a message that contains the text.
#[track_caller]
fn until_explained(kubectl: &Kubectl<'_>, name: &str, reason: &str, text: &str) {
    eventually(&format!("{name} says {text:?}"), || {
        let pod = kubectl.json(&format!("get pod {name}"));
        let condition = &pod["status"]["conditions"][0];
        let is_right = condition["reason"] == reason && condition["message"].as_str().is_some_and(|message| message.contains(text));
        if is_right { Ok(()) } else { Err(format!("{condition}")) }
    });
}

fn pods_go_to_the_node_with_the_lowest_load(kubectl: &Kubectl<'_>) {
    create(kubectl, "first", "gpu");
    kubectl.until("pod/first", "/spec/nodeName", "n2");
    kubectl.ok("label node n2 --overwrite gpu.example.com/load=95");
    create(kubectl, "second", "gpu");
    kubectl.until("pod/second", "/spec/nodeName", "n3");
    kubectl.ok("label node n1 --overwrite gpu.example.com/load=0");
    create(kubectl, "third", "gpu");
    kubectl.until("pod/third", "/spec/nodeName", "n1");
}

fn a_private_registry_gets_the_password_of_the_file(cluster: &Cluster, file: &Path) {
    let kubectl = cluster.kubectl();
    let image = format!("loading plugin \"Private\": the image {LOCKED}/gpu-load:v1 cannot be read: ");
    create(&kubectl, "private", "private");
    let missing = format!("the registry configuration {} cannot be read: No such file", file.display());
    until_explained(&kubectl, "private", "SchedulerError", &format!("{image}{missing}"));
    let write = |password: &str| {
        let config = json!({"auths": {LOCKED: {"username": "sailor", "password": password}}});
        std::fs::write(file, config.to_string()).expect("writes");
    };
    write("open says me");
    let refused = format!("{image}failed to pull image \"{LOCKED}/gpu-load:v1\": unexpected status from GET request");
    until_explained(&kubectl, "private", "SchedulerError", &refused);
    write("open sesame");
    until_bound(&kubectl, "private");
    let log = cluster.log();
    assert!(log.contains("scheduler plugin loaded") && !log.contains("open says me") && !log.contains("open sesame"), "{log}");
}

fn a_group_waits_until_it_is_whole(kubectl: &Kubectl<'_>) {
    create(kubectl, "one", "pairs");
    let message = "0/1 nodes are available: 1 rejected due to timeout after waiting 7s at plugin Pairs.";
    until_explained(kubectl, "one", "Unschedulable", message);
    create(kubectl, "other", "pairs");
    until_bound(kubectl, "one");
    until_bound(kubectl, "other");
}

fn failures_have_the_effect_of_their_policy(cluster: &Cluster, dir: &Path) {
    let kubectl = cluster.kubectl();
    create(&kubectl, "unloaded", "strict");
    until_explained(&kubectl, "unloaded", "SchedulerError", "loading plugin \"Strict\": the image plugins/changing:v1 cannot be read");
    for (name, body, text) in [
        ("trapping", "(unreachable)", "running Score plugin \"Strict\": score: wasm trap: wasm `unreachable` instruction executed"),
        ("looping", SPIN, "running Score plugin \"Strict\": score: it used up its fuel of 10000000"),
        ("hungry", BOMB, "running Score plugin \"Strict\": score: it wanted more than 67108864 bytes of memory"),
    ] {
        import(cluster, dir, CHANGING, &Guest { score: Some(body), ..Guest::default() }.component());
        create(&kubectl, name, "strict");
        until_explained(&kubectl, name, "SchedulerError", text);
        create(&kubectl, &format!("{name}-ignored"), "lenient");
        until_bound(&kubectl, &format!("{name}-ignored"));
    }
    import(cluster, dir, CHANGING, &Guest { score: Some(SCORE_LABELS), ..Guest::default() }.component());
    for name in ["unloaded", "trapping", "looping", "hungry"] {
        until_bound(&kubectl, name);
    }
}

fn new_arguments_are_used_without_a_start(kubectl: &Kubectl<'_>, file: &Path, write: &dyn Fn(&str)) {
    for (node, load) in [("n1", "90"), ("n2", "90"), ("n3", "10")] {
        kubectl.ok(&format!("label node {node} gpu.example.com/other={load}"));
    }
    write("gpu.example.com/other");
    kubectl.until_counted("skiff_scheduler_config_reloads_total{result=\"success\"} 1");
    kubectl.until_counted("skiff_scheduler_wasm_plugin_loads_total{plugin=\"GpuLoad\",result=\"loaded\"} 2");
    create(kubectl, "reloaded", "gpu");
    kubectl.until("pod/reloaded", "/spec/nodeName", "n3");
    std::fs::write(file, "profiles: none").expect("writes");
    kubectl.until_counted("skiff_scheduler_config_reloads_total{result=\"failure\"} 1");
    let event = eventually("the event about the file", || {
        let events = kubectl.ok("get events --field-selector reason=ConfigurationNotUsed");
        if events.contains("the one before stays in use: it is not valid") { Ok(events) } else { Err(events) }
    });
    assert!(event.contains("kubeschedulerconfiguration/kube-scheduler"), "{event}");
    create(kubectl, "unharmed", "gpu");
    kubectl.until("pod/unharmed", "/spec/nodeName", "n3");
}

fn a_broken_version_leaves_the_one_before_in_use(cluster: &Cluster, dir: &Path) {
    let kubectl = cluster.kubectl();
    import(cluster, dir, "plugins/gpu-load:v1", b"\0asm\x01\0\0\0");
    kubectl.until_counted("skiff_scheduler_wasm_plugin_loads_total{plugin=\"GpuLoad\",result=\"failed\"} 1");
    create(&kubectl, "fourth", "gpu");
    kubectl.until("pod/fourth", "/spec/nodeName", "n3");
}
