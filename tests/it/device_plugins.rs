//! A device plugin beside a node: its devices are in the Node's status, Pods get them with what the plugin adds, also through a crash of the
//! node, and others wait until one is free.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use node_device_plugins::wire::{ContainerAllocateResponse, DevicePluginOptions, DeviceSpec, Mount};
use serde_json::Value;
use tests::device_plugin::{DevicePlugin, Script, devices, register};
use tests::loop_device::LoopDevice;
use tests::{Cluster, Kubectl, eventually};
use tokio::runtime::Runtime;

const THING: &str = "example.com/thing";
const SOCKET: &str = "thing.sock";

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  FIELDS
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  containers:
    - name: c
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "echo got $(THING); until [ -e /stop ]; do sleep 0.1; done"]
      env: [{name: MODE, value: own}]
      resources: {limits: {"example.com/RESOURCE": NUMBER}}
"#;

fn pod(name: &str) -> String {
    POD.replace("NAME", name).replace("RESOURCE", "thing").replace("NUMBER", "1").replace("  FIELDS\n", "")
}

/// A Pod that no scheduler weighed.
fn bound(name: &str, node: &str, resource: &str, number: &str) -> String {
    let pod = POD.replace("NAME", name).replace("RESOURCE", resource).replace("NUMBER", number);
    pod.replace("FIELDS", &format!("nodeName: {node}"))
}

/// A plugin that offers block devices. A process of its own would do the same.
struct Offering {
    runtime: Runtime,
    dir: PathBuf,
    script: Script,
    plugin: Option<DevicePlugin>,
}

impl Offering {
    /// Two devices, `d0` and `d1`, and a library for their users.
    fn new(cluster: &Cluster, all: &[LoopDevice; 2], library: &str) -> Self {
        let paths: BTreeMap<String, String> =
            all.iter().enumerate().map(|(number, device)| (format!("d{number}"), device.path().display().to_string())).collect();
        let library = library.to_owned();
        let allocate = move |ids: Vec<String>| {
            let device = |id: &String| DeviceSpec {
                container_path: "/dev/thing".to_owned(),
                host_path: paths[id].clone(),
                permissions: "rw".to_owned(),
            };
            let envs = [("THING".to_owned(), ids.join(",")), ("MODE".to_owned(), "plugin".to_owned())].into();
            let mount = Mount { container_path: "/opt/thing".to_owned(), host_path: library.clone(), read_only: true };
            let devices = ids.iter().map(device).collect();
            let response = ContainerAllocateResponse { envs, mounts: vec![mount], devices, ..ContainerAllocateResponse::default() };
            Box::pin(async move { Ok(response) }) as tests::device_plugin::Answer<_>
        };
        let options = DevicePluginOptions { pre_start_required: true, ..DevicePluginOptions::default() };
        let script = Script { options, allocate: Arc::new(allocate), ..Script::default() };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        Self { runtime, dir: cluster.device_plugin_dir(), script, plugin: None }
    }

    /// Serves the plugin and registers, as plugins do when the node's socket appears.
    fn begin(&mut self, listed: &str) {
        self.plugin = None;
        let socket = self.dir.join(SOCKET);
        eventually("the node has removed the old socket", || if socket.exists() { Err(String::new()) } else { Ok(()) });
        eventually("the node listens", || if self.dir.join("kubelet.sock").exists() { Ok(()) } else { Err(String::new()) });
        let _within = self.runtime.enter();
        self.plugin = Some(DevicePlugin::serve(&self.dir, SOCKET, listed, self.script.clone()));
        eventually("the plugin is registered", || {
            self.runtime.block_on(register(&self.dir, SOCKET, THING)).map_err(|status| status.to_string())
        });
    }

    fn plugin(&self) -> &DevicePlugin {
        self.plugin.as_ref().expect("it has begun")
    }

    /// How often the plugin got this call.
    fn count(&self, call: &str) -> usize {
        self.plugin().calls().iter().filter(|one| *one == call).count()
    }
}

#[test]
fn pods_get_the_devices_of_a_plugin() {
    let work = tempfile::tempdir().expect("a directory");
    let loops = ["a", "b"].map(|name| LoopDevice::over(&work.path().join(name), 1 << 20));
    fs::write(work.path().join("library"), "of things").expect("a file");
    let mut cluster = Cluster::up();
    let node = cluster.kubectl().ok("get nodes -o jsonpath={.items[0].metadata.name}");
    let mut offering = Offering::new(&cluster, &loops, &work.path().display().to_string());
    offering.begin("d0 d1");
    until_amounts(&cluster.kubectl(), &node, "2", "2");
    {
        let kubectl = cluster.kubectl();
        kubectl.apply(&pod("first")).ok();
        kubectl.until_ready("first");
        it_has_its_device(&kubectl, "first", "d0", &loops[0]);
        kubectl.apply(&pod("second")).ok();
        kubectl.until_ready("second");
        it_has_its_device(&kubectl, "second", "d1", &loops[1]);
        others_wait_or_are_rejected(&kubectl, &node);
        resources_of_others_stay(&kubectl, &node);
        offering.plugin().devices.send_replace(devices("d0 !d1"));
        until_amounts(&kubectl, &node, "2", "1");
    }
    it_survives_a_crash(&mut cluster, &mut offering, &node);
    let kubectl = cluster.kubectl();
    kubectl.ok("delete pod first --timeout=60s");
    kubectl.until_ready("third");
    assert_eq!(thing_of(&kubectl, "third"), "d0");
    metrics_are_upstreams(&kubectl, &node);
    kubectl.ok("delete pod second third --timeout=60s");
    what_cannot_have_devices_is_refused(&kubectl);
    offering.plugin = None;
    until_amounts(&kubectl, &node, "2", "0");
    assert_eq!(cluster.stop(), 0, "{}", cluster.log());
    assert!(!offering.dir.join("kubelet.sock").exists(), "the node takes its socket along");
    assert!(!cluster.log().contains("panicked"), "{}", cluster.log());
}

/// Capacity and allocatable in the Node's status.
fn until_amounts(kubectl: &Kubectl<'_>, node: &str, capacity: &str, allocatable: &str) {
    eventually(&format!("the node has {capacity} things, {allocatable} healthy"), || {
        let amount = |list: &str| kubectl.field(&format!("node/{node}"), &format!("/status/{list}/example.com~1thing"));
        let amounts = (amount("capacity"), amount("allocatable"));
        if amounts == (Value::from(capacity), Value::from(allocatable)) { Ok(()) } else { Err(format!("{amounts:?}")) }
    });
}

fn thing_of(kubectl: &Kubectl<'_>, pod: &str) -> String {
    kubectl.run(&["exec", pod, "--", "sh", "-c", "echo $THING"]).ok().trim().to_owned()
}

fn it_has_its_device(kubectl: &Kubectl<'_>, pod: &str, id: &str, device: &LoopDevice) {
    let exec = |script: &str| kubectl.run(&["exec", pod, "--", "sh", "-c", script]);
    assert_eq!(exec("echo $THING $MODE; cat /opt/thing/library").ok(), format!("{id} own\nof things"));
    eventually("the log of the container", || {
        let log = kubectl.ok(&format!("logs {pod}"));
        if log.starts_with(&format!("got {id}\n")) { Ok(()) } else { Err(log) }
    });
    exec(&format!("printf 'by {pod}' | dd of=/dev/thing bs=512 conv=sync,fsync")).ok();
    assert!(fs::read(device.path()).expect("the device").starts_with(format!("by {pod}").as_bytes()), "it is the node's device");
    exec("echo over > /opt/thing/library").fails();
}

/// The scheduler knows that nothing is left. The node rejects a Pod that was bound to it without the scheduler.
fn others_wait_or_are_rejected(kubectl: &Kubectl<'_>, node: &str) {
    kubectl.apply(&pod("third")).ok();
    eventually("the third Pod waits", || {
        let text = kubectl.ok("describe pod third");
        if text.contains("Insufficient example.com/thing") { Ok(()) } else { Err(text) }
    });
    kubectl.apply(&bound("bound", node, "thing", "1")).ok();
    kubectl.until("pod/bound", "/status/reason", "UnexpectedAdmissionError");
    assert_eq!(kubectl.field("pod/bound", "/status/phase"), "Failed");
    let wanted = "Pod was rejected: Allocate failed due to requested number of devices unavailable for example.com/thing. \
                  Requested: 1, Available: 0, which is unexpected";
    assert_eq!(kubectl.field("pod/bound", "/status/message"), wanted);
    kubectl.ok("delete pod bound --timeout=60s");
}

/// What an administrator wrote to the Node's status by hand counts, and stays.
fn resources_of_others_stay(kubectl: &Kubectl<'_>, node: &str) {
    let patch = r#"[{"op":"add","path":"/status/capacity/example.com~1manual","value":"3"}]"#;
    kubectl.run(&["patch", "node", node, "--subresource=status", "--type=json", "-p", patch]).ok();
    let patch = patch.replace("capacity", "allocatable");
    kubectl.run(&["patch", "node", node, "--subresource=status", "--type=json", "-p", &patch]).ok();
    kubectl.apply(&bound("bound", node, "manual", "4")).ok();
    kubectl.until("pod/bound", "/status/reason", "OutOfexample.com/manual");
    kubectl.ok("delete pod bound --timeout=60s");
}

fn it_survives_a_crash(cluster: &mut Cluster, offering: &mut Offering, node: &str) {
    cluster.kill();
    assert!(offering.dir.join("kubelet.sock").exists(), "nobody removed it");
    cluster.start();
    // Until the plugin is back, the node has no devices, and those that it gave away are not given again.
    until_amounts(&cluster.kubectl(), node, "0", "0");
    offering.begin("d0 d1");
    let kubectl = cluster.kubectl();
    until_amounts(&kubectl, node, "2", "2");
    for (pod, id) in [("first", "d0"), ("second", "d1")] {
        kubectl.until_ready(pod);
        assert_eq!(kubectl.field(&format!("pod/{pod}"), "/status/containerStatuses/0/restartCount"), 0, "it goes on");
        assert_eq!(thing_of(&kubectl, pod), id);
    }
    assert_eq!(kubectl.field(&format!("node/{node}"), "/status/allocatable/example.com~1manual"), "3");
    assert_eq!(kubectl.field("pod/third", "/status/phase"), "Pending");
    // A container that starts again has the device that its Pod has, and the plugin hears of it.
    kubectl.ok("exec first -- touch /stop");
    kubectl.until("pod/first", "/status/containerStatuses/0/restartCount", 1);
    kubectl.until_ready("first");
    assert_eq!(kubectl.ok("exec first -- head -c 8 /dev/thing"), "by first");
    assert_eq!((offering.count("PreStartContainer d0"), offering.count("Allocate d0")), (1, 0));
}

fn metrics_are_upstreams(kubectl: &Kubectl<'_>, node: &str) {
    let text = kubectl.ok(&format!("get --raw /api/v1/nodes/{node}/proxy/metrics"));
    for line in [
        r#"kubelet_device_plugin_registration_total{resource_name="example.com/thing"} 1"#,
        r#"kubelet_device_plugin_alloc_duration_seconds_count{resource_name="example.com/thing"} 1"#,
    ] {
        assert!(text.lines().any(|present| present == line), "{line} in\n{text}");
    }
}

fn what_cannot_have_devices_is_refused(kubectl: &Kubectl<'_>) {
    let wasm = pod("guest").replace("samples/tools", "samples/hello");
    let wasm = wasm.replace(r#"      command: [sh, -c, "echo got $(THING); until [ -e /stop ]; do sleep 0.1; done"]"#, "");
    let own_users = POD.replace("NAME", "users").replace("RESOURCE", "thing").replace("NUMBER", "1").replace("FIELDS", "hostUsers: false");
    for (name, yaml, wanted) in [
        ("guest", wasm, "the device /dev/thing of container \"c\": a WebAssembly container cannot have devices"),
        ("users", own_users, "the device /dev/thing of container \"c\": a Pod with hostUsers: false cannot have devices"),
    ] {
        kubectl.apply(&yaml).ok();
        assert_eq!(kubectl.until_waiting(name, "CreateContainerConfigError", wanted), wanted);
        kubectl.ok(&format!("delete pod {name} --timeout=60s"));
    }
}
