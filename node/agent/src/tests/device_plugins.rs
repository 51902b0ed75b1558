use node_device_plugins::wire::{ContainerAllocateResponse, DeviceSpec, Mount};
use runtimes_contract::ContainerSpec;
use runtimes_fake::Behaviour;

use super::*;
use device_plugin::{DevicePlugin, Script as PluginScript, register};

#[path = "../../../../tests/support/device_plugin.rs"]
#[allow(dead_code, missing_docs, unreachable_pub, clippy::expect_used, reason = "shared with the stories")]
mod device_plugin;

const THING: &str = "example.com/thing";

fn with_things(image: &str, number: u32) -> Value {
    let resources = json!({"limits": {THING: number.to_string()}});
    let env = json!([{"name": "MODE", "value": "own"}]);
    json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": image, "resources": resources, "env": env}]})
}

/// A cluster whose node has device plugins.
async fn with_plugins(mut cluster: Cluster) -> (Cluster, Running) {
    cluster.config.device_plugin_dir = Some(cluster.data.path().join("plugins"));
    let agent = cluster.start();
    cluster.node_ready().await;
    (cluster, agent)
}

/// Registers a plugin, once the node has removed the sockets of earlier ones, and waits until the node has its devices.
async fn offer(cluster: &Cluster, listed: &str, script: PluginScript) -> DevicePlugin {
    let dir = cluster.config.device_plugin_dir.clone().expect("a directory");
    until("the node listens", async || dir.join("kubelet.sock").exists() && !dir.join("thing.sock").exists()).await;
    let plugin = DevicePlugin::serve(&dir, "thing.sock", listed, script);
    until("it is registered", async || register(&dir, "thing.sock", THING).await.is_ok()).await;
    let number = listed.split_whitespace().count().to_string();
    let nodes = cluster.nodes();
    let amount = async || Some(nodes.get(NODE).await.ok()?.status?.allocatable?.remove(THING)?.0);
    until("the node has its devices", async || amount().await.as_ref() == Some(&number)).await;
    plugin
}

fn env(spec: &ContainerSpec, name: &str) -> Option<String> {
    spec.env.iter().find(|(present, _)| present == name).map(|(_, value)| value.clone())
}

/// What containers of that image got as their devices.
fn things(world: &World) -> Vec<Option<String>> {
    world.specs().iter().map(|spec| env(spec, "THINGS")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_never_answers_stops_nobody_else() {
    let (cluster, agent) = with_plugins(Cluster::new(Script::default()).await).await;
    let hanging = PluginScript { allocate: Arc::new(|_| Box::pin(std::future::pending())), ..PluginScript::default() };
    let plugin = offer(&cluster, "d0 d1", hanging).await;
    cluster.create("first", with_things("web:1", 1)).await;
    cluster.create("deleted", with_things("web:1", 1)).await;
    until("the plugin is called", async || plugin.calls().len() == 1).await;
    cluster.create("plain", one("web:1")).await;
    cluster.ready("plain").await;
    // Nobody else gets the devices meanwhile, and a Pod that is deleted does not wait.
    cluster.create("third", with_things("web:1", 1)).await;
    let status = cluster.status("third", "rejected", |status| status["reason"] == "UnexpectedAdmissionError").await;
    let wanted = "Allocate failed due to requested number of devices unavailable for example.com/thing. Requested: 1, Available: 0, which is unexpected";
    assert!(status["message"].as_str().is_some_and(|message| message.ends_with(wanted)), "{status:#}");
    cluster.delete("deleted", 0).await;
    cluster.gone("deleted").await;
    // Killed in the middle, the node has given nothing away.
    agent.kill().await;
    drop(plugin);
    let _agent = cluster.start();
    let status = cluster.status("first", "rejected", |status| status["phase"] == "Failed").await;
    assert!(status["message"].as_str().is_some_and(|message| message.contains("no healthy devices present")), "{status:#}");
    let plugin = offer(&cluster, "d0 d1", PluginScript::default()).await;
    cluster.create("both", with_things("web:1", 2)).await;
    cluster.ready("both").await;
    assert_eq!(plugin.calls(), ["Allocate d0,d1"]);
    assert!(things(&cluster.linux).contains(&Some("d0,d1".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_are_free_when_the_status_of_a_pod_says_that_it_has_ended() {
    let script = Script::default()
        .containers(|spec| if spec.args == ["/end"] { Behaviour::Exit { after: Duration::ZERO, code: 0 } } else { Behaviour::Run });
    let (cluster, agent) = with_plugins(Cluster::new(script).await).await;
    let plugin = offer(&cluster, "d0", PluginScript::default()).await;
    let mut short = with_things("web:1", 1);
    short["containers"][0]["command"] = json!(["/end"]);
    for name in ["one", "two", "three"] {
        cluster.create(name, short.clone()).await;
        cluster.status(name, "ended", |status| status["phase"] == "Succeeded").await;
    }
    cluster.create("lasting", with_things("web:1", 1)).await;
    cluster.ready("lasting").await;
    assert_eq!(plugin.calls(), ["Allocate d0"; 4]);
    // The allocation outlives the agent, and not the Pod, also when that goes while no agent runs.
    drop(plugin);
    let agent = cluster.replace_agent(agent).await;
    let plugin = offer(&cluster, "d0", PluginScript::default()).await;
    cluster.create("refused", with_things("web:1", 1)).await;
    cluster.status("refused", "rejected", |status| status["reason"] == "UnexpectedAdmissionError").await;
    agent.kill().await;
    drop(plugin);
    let force = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    cluster.pods().delete("lasting", &force).await.expect("deleted");
    cluster.gone("lasting").await;
    let _agent = cluster.start();
    let plugin = offer(&cluster, "d0", PluginScript::default()).await;
    until("the leftover is removed", async || things(&cluster.linux).iter().all(Option::is_none)).await;
    let file = cluster.data.path().join("kubelet/device_plugin_allocations");
    until("the device is free", async || !std::fs::read_to_string(&file).expect("the file").contains("\"d0\"")).await;
    cluster.create("next", with_things("web:1", 1)).await;
    cluster.ready("next").await;
    assert_eq!(plugin.calls(), ["Allocate d0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_gets_what_the_plugin_adds() {
    let mut cluster = Cluster::new(Script::default()).await;
    cluster.wasm = World::new(Script::default());
    let (cluster, _agent) = with_plugins(cluster).await;
    let library = cluster.data.path().join("library");
    let source = library.display().to_string();
    let allocate = move |ids: Vec<String>| {
        let text = str::to_owned;
        let mut response = ContainerAllocateResponse {
            envs: [("MODE", "plugin"), ("EXTRA", "1"), ("PATH", "/plugin")].map(|(name, value)| (text(name), text(value))).into(),
            mounts: vec![Mount { container_path: text("/lib/thing"), host_path: source.clone(), read_only: true }],
            annotations: [(text("example.com/a"), text("b"))].into(),
            ..ContainerAllocateResponse::default()
        };
        if ids.len() > 1 {
            let device = DeviceSpec { container_path: text("/dev/thing"), host_path: text("/dev/null"), permissions: text("r") };
            response.devices.push(device);
        }
        Box::pin(async move { Ok(response) }) as device_plugin::Answer<_>
    };
    let _plugin = offer(&cluster, "d0 d1 d2", PluginScript { allocate: Arc::new(allocate), ..PluginScript::default() }).await;
    cluster.create("guest", with_things("wasm:1", 1)).await;
    let waiting = |status: &Value| status["containerStatuses"][0]["state"]["waiting"]["message"].as_str().map(str::to_owned);
    let missing = format!("a device plugin mounts {} at /lib/thing: No such file or directory (os error 2)", library.display());
    cluster.status("guest", "waiting", |status| waiting(status).as_ref() == Some(&missing)).await;
    std::fs::write(&library, "").expect("a file");
    cluster.ready("guest").await;
    let spec = cluster.wasm.specs().pop().expect("a container");
    assert_eq!(["MODE", "EXTRA", "PATH"].map(|name| env(&spec, name).unwrap_or_default()), ["own", "1", "/plugin"]);
    assert!(spec.mounts.contains(&runtimes_contract::Mount::new(&library, "/lib/thing", true)), "{:?}", spec.mounts);
    assert_eq!(spec.annotations.get("example.com/a").map(String::as_str), Some("b"));
    cluster.create("with-device", with_things("wasm:1", 2)).await;
    let refused = "the device /dev/thing of container \"c\": a WebAssembly container cannot have devices";
    cluster.status("with-device", "waiting", |status| waiting(status).as_deref() == Some(refused)).await;
    cluster.delete("with-device", 0).await;
    cluster.gone("with-device").await;
    // A Pod that is deleted at once leaves the API before its devices are free.
    let file = cluster.data.path().join("kubelet/device_plugin_allocations");
    until("its devices are free", async || !std::fs::read_to_string(&file).expect("the file").contains("\"d2\"")).await;
    cluster.create("linux", with_things("web:1", 2)).await;
    cluster.ready("linux").await;
    let spec = cluster.linux.specs().pop().expect("a container");
    let device = runtimes_contract::Device { source: "/dev/null".into(), target: "/dev/thing".into(), access: "r".to_owned() };
    assert_eq!(spec.devices, [device]);
}
