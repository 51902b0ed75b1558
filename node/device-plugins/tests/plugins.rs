//! The device manager with real plugins over unix sockets.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "../../../tests/support/device_plugin.rs"]
#[allow(dead_code, missing_docs, unreachable_pub, reason = "shared with the stories")]
mod device_plugin;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device_plugin::{DevicePlugin, Script, devices, register, register_with};
use node_device_plugins::wire::{CdiDevice, ContainerAllocateResponse, DevicePluginOptions, RegisterRequest};
use node_device_plugins::{AllocateError, Config, ContainerRequest, DevicePlugins, PodRequest};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Status;

const DEADLINE: Duration = Duration::from_secs(20);
const THING: &str = "example.com/thing";

/// A node that serves plugins.
struct Node {
    plugins: Arc<DevicePlugins>,
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

impl Node {
    fn start(at: &Path, boot_id: &str) -> Self {
        Self::of(Config { dir: Some(dir(at)), state_file: at.join("allocations"), boot_id: boot_id.to_owned() })
    }

    fn of(config: Config) -> Self {
        let plugins = Arc::new(DevicePlugins::open(config).expect("the allocations"));
        let cancel = CancellationToken::new();
        let task = tokio::spawn(node_device_plugins::run(plugins.clone(), cancel.clone()));
        Self { plugins, cancel, task }
    }

    async fn serving(at: &Path, boot_id: &str) -> Self {
        let node = Self::start(at, boot_id);
        until("the socket", || dir(at).join("kubelet.sock").exists()).await;
        node
    }

    async fn stop(self) {
        self.cancel.cancel();
        self.task.await.expect("an end");
    }

    /// Capacity and allocatable.
    fn amount(&self, resource: &str) -> Option<(usize, usize)> {
        self.plugins.amounts().get(resource).map(|amount| (amount.capacity, amount.allocatable))
    }

    async fn until(&self, wanted: (usize, usize)) {
        until(&format!("{wanted:?} things"), || self.amount(THING) == Some(wanted)).await;
    }

    async fn env(&self, pod: &PodRequest, container: usize) -> Option<String> {
        let devices = self.plugins.prepare(pod, &pod.containers[container]).await.expect("devices");
        devices.envs.get("THINGS").cloned()
    }
}

fn dir(at: &Path) -> PathBuf {
    at.join("plugins")
}

async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let waiting = async {
        while !is_true() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waiting).await.unwrap_or_else(|_| panic!("{what} in time"));
}

fn container(name: &str, number: u64) -> ContainerRequest {
    ContainerRequest { name: name.to_owned(), ends_first: false, limits: BTreeMap::from([(THING.to_owned(), number)]) }
}

fn pod(uid: &str, numbers: &[u64]) -> PodRequest {
    let containers = numbers.iter().enumerate().map(|(index, number)| container(&format!("c{index}"), *number));
    PodRequest { uid: uid.to_owned(), containers: containers.collect() }
}

async fn registered(at: &Path, node: &Node, listed: &str, script: Script) -> DevicePlugin {
    let plugin = DevicePlugin::serve(&dir(at), "thing.sock", listed, script);
    register(&dir(at), "thing.sock", THING).await.expect("registered");
    let (all, broken) = (listed.split_whitespace().count(), listed.matches('!').count());
    node.until((all, all - broken)).await;
    plugin
}

#[tokio::test]
async fn devices_are_given_once_and_freed() {
    let at = tempfile::tempdir().expect("a directory");
    let node = Node::serving(at.path(), "boot").await;
    assert!(!node.plugins.manages(THING));
    node.plugins.allocate(&pod("a", &[1]), false).await.expect("the resource is nobody's");
    let plugin = registered(at.path(), &node, "d0 d1 !d2", Script::default()).await;
    node.until((3, 2)).await;
    let (a, b) = (pod("a", &[1, 1]), pod("b", &[1]));
    node.plugins.allocate(&a, false).await.expect("devices");
    node.plugins.allocate(&a, false).await.expect("the same devices");
    assert_eq!(plugin.calls(), ["Allocate d0", "Allocate d1"]);
    assert_eq!((node.env(&a, 0).await.as_deref(), node.env(&a, 1).await.as_deref()), (Some("d0"), Some("d1")));
    let error = node.plugins.allocate(&b, false).await.expect_err("none left").to_string();
    assert_eq!(error, "requested number of devices unavailable for example.com/thing. Requested: 1, Available: 0");
    let error = node.plugins.allocate(&pod("a", &[2, 1]), true).await.expect_err("a change").to_string();
    assert_eq!(error, r#"pod "a" container "c0" changed request for resource "example.com/thing" from 1 to 2"#);
    plugin.devices.send_replace(devices("d0 d1 d2"));
    node.until((3, 3)).await;
    node.plugins.allocate(&b, false).await.expect("it works again");
    let error = node.plugins.allocate(&pod("c", &[0, 1]), false).await.expect_err("none left");
    assert!(matches!(error, AllocateError::TooFew { .. }) && !node.plugins.has_devices("c"));
    node.plugins.release("a").await;
    node.plugins.allocate(&pod("c", &[2]), false).await.expect("those of a");
    assert_eq!(node.plugins.pods(), ["b", "c"]);
    node.stop().await;
    assert!(!dir(at.path()).join("kubelet.sock").exists() && dir(at.path()).join("thing.sock").exists());
}

#[tokio::test]
async fn init_containers_leave_their_devices_to_those_after_them() {
    let at = tempfile::tempdir().expect("a directory");
    let node = Node::serving(at.path(), "boot").await;
    let options = DevicePluginOptions { get_preferred_allocation_available: true, ..DevicePluginOptions::default() };
    let script = Script { options, preferred: vec!["d3".to_owned(), "nonsense".to_owned()], ..Script::default() };
    let plugin = registered(at.path(), &node, "d0 d1 d2 d3", script).await;
    let mut request = pod("a", &[1, 1, 1, 1]);
    request.containers[0].ends_first = true;
    request.containers[2].ends_first = true;
    // An init container, a sidecar with its device, an init container that needs another, and a main container with that.
    node.plugins.allocate(&request, false).await.expect("devices");
    assert_eq!(
        plugin.calls(),
        [
            "GetPreferredAllocation 1 of d0,d1,d2,d3 with ",
            "Allocate d3",
            "Allocate d3",
            "GetPreferredAllocation 1 of d0,d1,d2 with ",
            "Allocate d0",
            "Allocate d0"
        ]
    );
    node.plugins.allocate(&pod("b", &[2]), false).await.expect("the two that are left");
    node.stop().await;
}

#[tokio::test]
async fn a_plugin_that_has_gone_takes_its_devices_along_and_may_come_back() {
    let at = tempfile::tempdir().expect("a directory");
    let node = Node::serving(at.path(), "boot").await;
    let mut changes = node.plugins.changes();
    let plugin = registered(at.path(), &node, "d0 d1", Script::default()).await;
    assert!(changes.has_changed().expect("open"));
    changes.mark_unchanged();
    node.plugins.allocate(&pod("a", &[1]), false).await.expect("a device");
    drop(plugin);
    tokio::time::timeout(DEADLINE, changes.changed()).await.expect("in time").expect("open");
    assert_eq!(node.amount(THING), Some((2, 0)), "unhealthy at once");
    let error = node.plugins.allocate(&pod("b", &[1]), false).await.expect_err("none").to_string();
    assert_eq!(error, "no healthy devices present; cannot allocate unhealthy devices example.com/thing");
    assert_eq!(node.env(&pod("a", &[1]), 0).await.as_deref(), Some("d0"), "a container may start again");
    std::fs::remove_file(dir(at.path()).join("thing.sock")).expect("removed");
    let plugin = registered(at.path(), &node, "d0 d1", Script::default()).await;
    node.until((2, 2)).await;
    // Again and again: the last one counts, and the others are let go.
    for _ in 0..50 {
        register(&dir(at.path()), "thing.sock", THING).await.expect("registered");
    }
    let other = DevicePlugin::serve(&dir(at.path()), "other.sock", "e0 e1 e2", Script::default());
    register(&dir(at.path()), "other.sock", THING).await.expect("registered");
    node.until((3, 3)).await;
    plugin.devices.send_replace(devices("d0"));
    until("the old connections are gone", || plugin.devices.receiver_count() == 0).await;
    assert_eq!(node.amount(THING), Some((3, 3)), "its list counts no more");
    drop(other);
    node.until((3, 0)).await;
    node.stop().await;
}

#[tokio::test]
async fn a_node_that_starts_again_knows_its_allocations() {
    let at = tempfile::tempdir().expect("a directory");
    let node = Node::serving(at.path(), "boot").await;
    let plugin = registered(at.path(), &node, "d0 d1", Script::default()).await;
    let a = pod("a", &[1]);
    node.plugins.allocate(&a, false).await.expect("a device");
    // As `kill -9`: nobody tidies up.
    node.task.abort();
    drop(plugin);
    let _ = node.task.await;
    drop(node.plugins);
    let stale = [dir(at.path()).join("thing.sock"), dir(at.path()).join("kubelet.sock")];
    assert!(stale.iter().all(|socket| socket.exists()));
    std::fs::write(dir(at.path()).join("config.json"), "{}").expect("a file");
    std::os::unix::fs::symlink("/nowhere", dir(at.path()).join("link")).expect("a link");

    let node = Node::start(at.path(), "boot");
    assert_eq!(node.amount(THING), Some((0, 0)), "until the plugin registers again");
    until("the old socket is removed", || !stale[0].exists() && stale[1].exists()).await;
    assert!(dir(at.path()).join("config.json").exists() && dir(at.path()).join("link").is_symlink(), "only sockets are");
    node.plugins.allocate(&a, true).await.expect("it runs");
    node.plugins.allocate(&a, false).await.expect("it has its device");
    assert_eq!(node.env(&a, 0).await.as_deref(), Some("d0"));
    assert!(node.plugins.allocate(&pod("b", &[1]), false).await.is_err());
    let plugin = registered(at.path(), &node, "d0 d1", Script::default()).await;
    node.plugins.allocate(&pod("b", &[1]), false).await.expect("the other device");
    assert_eq!(plugin.calls(), ["Allocate d1"]);
    node.stop().await;

    // No container outlives the machine's boot.
    let node = Node::serving(at.path(), "another boot").await;
    assert!(node.plugins.pods().is_empty() && node.amount(THING) == Some((0, 0)));
    node.stop().await;
    drop(plugin);
    std::fs::write(at.path().join("allocations"), "{}").expect("written");
    let config = Config { dir: None, state_file: at.path().join("allocations"), boot_id: "boot".to_owned() };
    let error = DevicePlugins::open(config).err().expect("no allocations").to_string();
    assert!(error.contains("please drain this node and delete the file"), "{error}");
}

#[tokio::test]
async fn hostile_registrations_are_refused() {
    let at = tempfile::tempdir().expect("a directory");
    let node = Node::serving(at.path(), "boot").await;
    let plugin = DevicePlugin::serve(at.path(), "outside.sock", "d0", Script::default());
    let plugins = dir(at.path());
    std::fs::write(plugins.join("file"), "").expect("a file");
    std::os::unix::fs::symlink(at.path().join("outside.sock"), plugins.join("link.sock")).expect("a link");
    let absolute = at.path().join("outside.sock").display().to_string();
    for endpoint in ["../outside.sock", &absolute, "", ".", "..", "file", "kubelet.sock", "a/../../outside.sock", "a\0b"] {
        let error = register(&plugins, endpoint, THING).await.expect_err(endpoint);
        assert_eq!(
            error.message(),
            format!("the endpoint {endpoint:?} is invalid: it must be the name of a socket in the directory of the device plugins")
        );
    }
    let error = register(&plugins, "link.sock", THING).await.expect_err("a link");
    assert!(error.message().starts_with("the endpoint \"link.sock\" is invalid"), "{error}");
    let long = format!("example.com/{}", "x".repeat(5_000));
    for resource in ["cpu", "thing", "kubernetes.io/thing", "requests.example.com/x", "example.com/../x", &long] {
        let error = register(&plugins, "x.sock", resource).await.expect_err(resource);
        assert!(error.message().starts_with(&format!("the ResourceName {resource:?}")[..20]), "{error}");
    }
    let request = RegisterRequest { version: "v1".to_owned(), endpoint: "x.sock".to_owned(), ..RegisterRequest::default() };
    let error = register_with(&plugins, request).await.expect_err("another version");
    let wanted = r#"requested API version "v1" is not supported by kubelet. Supported version is ["v1beta1"]"#;
    assert_eq!((error.code(), error.message()), (tonic::Code::Unknown, wanted));
    assert!(node.plugins.amounts().is_empty() && plugin.calls().is_empty());
    // A socket behind which there is no gRPC, and one that is silent.
    let garbage = tokio::net::UnixListener::bind(plugins.join("garbage.sock")).expect("a socket");
    let answering = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt as _;
        let (mut stream, _) = garbage.accept().await.expect("a connection");
        stream.write_all(&[0xff; 4_096]).await.expect("written");
    });
    assert!(register(&plugins, "garbage.sock", THING).await.is_err());
    answering.await.expect("answered");
    // A list with a name that is too long ends the connection.
    let listing = DevicePlugin::serve(&plugins, "listing.sock", &"d".repeat(300), Script::default());
    register(&plugins, "listing.sock", THING).await.expect("registered");
    until("it is let go", || listing.devices.receiver_count() == 0).await;
    assert_eq!(node.amount(THING), Some((0, 0)));
    assert_eq!(request_of(&plugins), 0o600, "the socket is root's alone");
    node.stop().await;
}

fn request_of(plugins: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(plugins.join("kubelet.sock")).expect("the socket").permissions().mode() & 0o777
}

#[tokio::test]
async fn failures_of_plugins_are_named_and_leave_nothing_behind() {
    let at = tempfile::tempdir().expect("a directory");
    let node = Node::serving(at.path(), "boot").await;
    let script = |answer: fn() -> Result<ContainerAllocateResponse, Status>| Script {
        allocate: Arc::new(move |_| Box::pin(async move { answer() })),
        ..Script::default()
    };
    let cdi = || {
        let cdi_devices = vec![CdiDevice { name: "vendor.com/gpu=0".to_owned() }];
        Ok(ContainerAllocateResponse { cdi_devices, ..ContainerAllocateResponse::default() })
    };
    let failing = || Err(Status::unknown("out of luck"));
    for (script, wanted) in [
        (script(failing), "rpc error: code = Unknown desc = out of luck".to_owned()),
        (
            script(cdi),
            "the device plugin of example.com/thing answered with the CDI device \"vendor.com/gpu=0\"; this node has no CDI: have the \
                       plugin pass devices and mounts by their paths"
                .to_owned(),
        ),
    ] {
        let _ = std::fs::remove_file(dir(at.path()).join("thing.sock"));
        let plugin = registered(at.path(), &node, "d0", script).await;
        let error = node.plugins.allocate(&pod("a", &[1]), false).await.expect_err("no device").to_string();
        assert_eq!((error, plugin.calls().len()), (wanted, 1));
        assert!(node.plugins.pods().is_empty());
        drop(plugin);
        node.until((1, 0)).await;
    }
    // One that never answers keeps its device from others, until nobody waits any more.
    let _ = std::fs::remove_file(dir(at.path()).join("thing.sock"));
    let hanging = Script { allocate: Arc::new(|_| Box::pin(std::future::pending())), ..Script::default() };
    let plugin = registered(at.path(), &node, "d0", hanging).await;
    let waiting = tokio::spawn({
        let plugins = node.plugins.clone();
        async move { plugins.allocate(&pod("a", &[1]), false).await }
    });
    until("the call", || !plugin.calls().is_empty()).await;
    let error = node.plugins.allocate(&pod("b", &[1]), false).await.expect_err("reserved");
    assert!(matches!(error, AllocateError::TooFew { available: 0, .. }), "{error}");
    waiting.abort();
    let _ = waiting.await;
    let b = pod("b", &[1]);
    let waiting = node.plugins.allocate(&b, false);
    assert!(tokio::time::timeout(Duration::from_millis(200), waiting).await.is_err(), "the device is free, and the plugin hangs again");
    assert_eq!(plugin.calls().len(), 2);
    assert!(node.plugins.pods().is_empty());
    node.stop().await;
}

#[tokio::test]
async fn plugins_prepare_each_start_if_they_want_to() {
    let at = tempfile::tempdir().expect("a directory");
    let node = Node::serving(at.path(), "boot").await;
    let options = DevicePluginOptions { pre_start_required: true, ..DevicePluginOptions::default() };
    let plugin = registered(at.path(), &node, "d0 d1", Script { options, ..Script::default() }).await;
    let a = pod("a", &[2]);
    node.plugins.allocate(&a, false).await.expect("devices");
    for _ in 0..2 {
        assert_eq!(node.env(&a, 0).await.as_deref(), Some("d0,d1"));
    }
    assert_eq!(plugin.calls(), ["Allocate d0,d1", "PreStartContainer d0,d1", "PreStartContainer d0,d1"]);
    drop(plugin);
    node.until((2, 0)).await;
    let error = node.plugins.prepare(&a, &a.containers[0]).await.expect_err("it has gone").to_string();
    assert_eq!(error, "device plugin PreStartContainer rpc failed with err: endpoint example.com/thing has been stopped");
    std::fs::remove_file(dir(at.path()).join("thing.sock")).expect("removed");
    let script = Script { options, pre_start: Err(Status::internal("no reset")), ..Script::default() };
    let plugin = registered(at.path(), &node, "d0 d1", script).await;
    let error = node.plugins.prepare(&a, &a.containers[0]).await.expect_err("it fails").to_string();
    assert_eq!(error, "device plugin PreStartContainer rpc failed with err: rpc error: code = Internal desc = no reset");
    drop(plugin);
    node.stop().await;
}

#[tokio::test]
async fn a_directory_has_one_owner() {
    let at = tempfile::tempdir().expect("a directory");
    let node = Node::serving(at.path(), "boot").await;
    let plugin = registered(at.path(), &node, "d0", Script::default()).await;
    let other = tempfile::tempdir().expect("a directory");
    let config = Config { dir: Some(dir(at.path())), state_file: other.path().join("allocations"), boot_id: String::new() };
    let second = Arc::new(DevicePlugins::open(config).expect("no file"));
    let cancel = CancellationToken::new();
    let task = tokio::spawn(node_device_plugins::run(second.clone(), cancel.clone()));
    node_device_plugins::remove(&at.path().join("allocations")).await.expect("another owner's socket stays");
    register(&dir(at.path()), "thing.sock", THING).await.expect("with the first");
    assert!(second.amounts().is_empty() && node.amount(THING) == Some((1, 1)));
    cancel.cancel();
    task.await.expect("an end");
    assert!(dir(at.path()).join("kubelet.sock").exists(), "it is the first one's");
    node.stop().await;
    drop(plugin);

    // A kubelet has no lock, and listens.
    let kubelet = tokio::net::UnixListener::bind(dir(at.path()).join("kubelet.sock")).expect("a socket");
    let node = Node::start(at.path(), "boot");
    let connected = tokio::time::timeout(DEADLINE, kubelet.accept()).await.expect("it looks");
    connected.expect("a connection");
    assert_eq!(node.amount(THING), Some((0, 0)), "the names of the resources outlive the removal");
    node.stop().await;
    assert!(dir(at.path()).join("kubelet.sock").exists() && dir(at.path()).join("thing.sock").exists());

    // What was left of a killed node goes with the node.
    drop(kubelet);
    node_device_plugins::remove(&at.path().join("allocations")).await.expect("removed");
    assert!(!dir(at.path()).join("kubelet.sock").exists());
}

#[tokio::test]
async fn a_plugin_may_register_before_it_listens() {
    let at = tempfile::tempdir().expect("a directory");
    let node = Node::serving(at.path(), "boot").await;
    let plugins = dir(at.path());
    let registering = tokio::spawn(async move { register(&plugins, "late.sock", THING).await });
    // The node has looked for the socket by now, or looks later: both must do.
    tokio::task::yield_now().await;
    let plugin = DevicePlugin::serve(&dir(at.path()), "late.sock", "d0", Script::default());
    registering.await.expect("no panic").expect("registered");
    node.until((1, 1)).await;
    drop(plugin);
    node.stop().await;
}

/// The Pod was admitted before the plugin registered: its containers get their devices when they start.
#[tokio::test]
async fn late_devices_are_reused_and_written_before_their_container_starts() {
    let at = tempfile::tempdir().expect("a directory");
    let state = at.path().join("state");
    let config = Config { dir: Some(dir(at.path())), state_file: state.join("allocations"), boot_id: "boot".to_owned() };
    let node = Node::of(config.clone());
    until("the socket", || dir(at.path()).join("kubelet.sock").exists()).await;
    let plugin = registered(at.path(), &node, "d0", Script::default()).await;
    let container = |name: &str, ends_first| ContainerRequest { name: name.to_owned(), ends_first, limits: [(THING.to_owned(), 1)].into() };
    let late = PodRequest { uid: "late".to_owned(), containers: vec![container("init", true), container("main", false)] };
    for _ in 0..2 {
        let error = node.plugins.prepare(&late, &late.containers[0]).await.expect_err("the file cannot be written").to_string();
        assert!(error.contains("No such file or directory"), "{error}");
    }
    std::fs::create_dir(&state).expect("a directory");
    assert_eq!(node.env(&late, 0).await.as_deref(), Some("d0"));
    assert_eq!(DevicePlugins::open(config.clone()).expect("a file").pods(), ["late"], "the file has it before the container starts");
    assert_eq!(node.env(&late, 1).await.as_deref(), Some("d0"), "the init container has left it");
    drop(plugin);
    node.stop().await;
}
