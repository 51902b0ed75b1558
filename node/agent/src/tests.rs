//! The whole agent against a real API server in the same process, with a scripted runtime, and images
//! and network made of nothing.

mod adoption;
mod app_armor;
mod claims;
mod cpus;
mod debugging;
mod device_plugins;
mod evictions;
mod finished;
mod image_volumes;
mod images;
mod joining;
mod kubelet_metrics;
mod lifecycle;
mod node_shutdown;
mod nodes;
mod over_https;
mod preparations;
mod recorded;
mod refusals;
mod requests;
mod resize;
mod restarts;
mod sandboxes;
mod static_pods;
mod streams;
mod thousand;
mod user_namespaces;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use api_auth::{Pki, PkiConfig};
use api_client::informer::Informers;
use api_model::request::UserInfo;
use api_server::{AtRest, Server};
use api_store::MemoryStore;
use api_tasks::Tasks;
use async_trait::async_trait;
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use node_images::{Image, ImageError, InUse, PullPolicy, RegistryAuth, WritableLayer};
use node_network::{HostPort, NetworkError, Peer, PodNetwork};
use parking_lot::Mutex;
use runtimes_contract::{Content, ContentKind, Sandbox, UserNamespace};
use runtimes_fake::{FakeRuntime, Fault, Operation, Script, World};
use runtimes_host::disk::Disk;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{Agent, AgentError, AppArmorPaths, Config, Images, Networks, Parts, Serving, ShutdownGracePeriods};
use node_shutdown::FakeLogind;

/// Keys take a while to make, so all tests share one cluster's.
static PKI: LazyLock<Arc<Pki>> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a directory");
    Arc::new(Pki::open(directory.path(), &PkiConfig::for_cluster("cluster.local")).expect("keys"))
});
/// Longest wait for a condition.
const DEADLINE: Duration = Duration::from_secs(30);
const NODE: &str = "n1";

/// Images by name: `wasm…` is WASM, `missing…` is in no registry, the rest is Linux.
#[derive(Default)]
struct FakeImages {
    mounts: Mutex<BTreeMap<String, String>>,
    listed: Mutex<Vec<Image>>,
    /// How often the list was read.
    readings: AtomicUsize,
    /// Where they are on the disk.
    dir: Mutex<Option<PathBuf>>,
    /// How often an image was pulled, or was not.
    pulls: AtomicUsize,
    /// How often all unused images were removed.
    purges: AtomicUsize,
    faults: Faults,
    /// Their file system says that it has no blocks.
    has_no_capacity: AtomicBool,
}

/// Lets every n-th call fail.
#[derive(Default)]
struct Faults {
    /// None fails while it is 0.
    every: AtomicUsize,
    calls: AtomicUsize,
}

impl Faults {
    fn set(&self, every: usize) {
        self.every.store(every, Ordering::SeqCst);
    }

    /// Whether the next call fails.
    fn is_next(&self) -> bool {
        let every = self.every.load(Ordering::SeqCst);
        every > 0 && (self.calls.fetch_add(1, Ordering::SeqCst) + 1).is_multiple_of(every)
    }

    fn of_network(&self) -> Result<(), NetworkError> {
        if self.is_next() { Err(NetworkError::Missing("injected".to_owned())) } else { Ok(()) }
    }

    fn of_images(&self, image: &str) -> Result<(), ImageError> {
        if self.is_next() { Err(ImageError::Pull { image: image.to_owned(), reason: "injected".to_owned() }) } else { Ok(()) }
    }
}

fn image(reference: &str) -> Option<Image> {
    if reference.starts_with("missing") {
        return None;
    }
    let kind = if reference.starts_with("wasm") { "Wasm" } else { "Linux" };
    let config = json!({"entrypoint": ["/run"], "cmd": [], "env": [["PATH", "/bin"]], "working_dir": "", "user": "", "stop_signal": ""});
    let image = json!({
        "id": format!("sha256:{reference}"), "references": [reference], "digests": [], "kind": kind, "size_bytes": 7,
        "config": config, "layers": [], "blobs": [], "used_at_s": 0,
    });
    Some(serde_json::from_value(image).expect("an image"))
}

#[async_trait]
impl Images for FakeImages {
    async fn pull(&self, reference: &str, _policy: PullPolicy, _auth: &[RegistryAuth]) -> Result<Image, ImageError> {
        self.pulls.fetch_add(1, Ordering::SeqCst);
        let missing = || ImageError::Pull { image: reference.to_owned(), reason: "not found".to_owned() };
        image(reference).ok_or_else(missing)
    }

    async fn get(&self, reference: &str) -> Result<Option<Image>, ImageError> {
        Ok(image(reference))
    }

    async fn list(&self) -> Result<Vec<Image>, ImageError> {
        self.readings.fetch_add(1, Ordering::SeqCst);
        Ok(self.listed.lock().clone())
    }

    async fn mount(&self, image: &Image, key: &str, _user: Option<&UserNamespace>) -> Result<Content, ImageError> {
        self.faults.of_images(&image.id)?;
        self.mounts.lock().insert(key.to_owned(), image.id.clone());
        Ok(match image.kind {
            ContentKind::Wasm => Content::Wasm { module: "/m.wasm".into(), digest: image.id.clone() },
            ContentKind::Linux => Content::Linux { rootfs: "/nowhere".into() },
        })
    }

    async fn mount_files(&self, image: &Image, key: &str, _at: &Path, _user: Option<&UserNamespace>) -> Result<(), ImageError> {
        self.mounts.lock().insert(key.to_owned(), image.id.clone());
        Ok(())
    }

    async fn unmount(&self, key: &str) -> Result<(), ImageError> {
        self.faults.of_images(key)?;
        self.mounts.lock().remove(key);
        Ok(())
    }

    async fn mounts(&self) -> Result<Vec<String>, ImageError> {
        Ok(self.mounts.lock().keys().cloned().collect())
    }

    fn writable_layer(&self, _key: &str) -> Option<WritableLayer> {
        None
    }

    fn dir(&self) -> Option<PathBuf> {
        self.dir.lock().clone()
    }

    async fn usage(&self) -> Result<Option<Disk>, ImageError> {
        Ok(Some(Disk { bytes: 4_096, inodes: 2 }))
    }

    async fn collect(&self, _in_use: InUse<'_>, high: u8, _low: u8) -> Result<usize, ImageError> {
        self.purges.fetch_add(usize::from(high == 0), Ordering::SeqCst);
        if self.has_no_capacity.load(Ordering::SeqCst) { Err(ImageError::NoCapacity) } else { Ok(0) }
    }
}

/// The address with a number.
fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 244, 0, 0)) + number)
}

/// Addresses one after the other.
#[derive(Default)]
struct FakeNetwork {
    pods: Mutex<BTreeMap<String, u32>>,
    /// The number of addresses so far.
    addresses: AtomicUsize,
    /// The Pods that were added since the list was cleared, again or for the first time.
    added: Mutex<BTreeSet<String>>,
    faults: Faults,
    cidr: Mutex<Option<Ipv4Net>>,
    is_withdrawn: AtomicBool,
}

#[async_trait]
impl Networks for FakeNetwork {
    async fn set_pod_cidr(&self, cidr: Ipv4Net) -> Result<(), NetworkError> {
        *self.cidr.lock() = Some(cidr);
        self.is_withdrawn.store(false, Ordering::SeqCst);
        Ok(())
    }

    fn withdraw_pod_cidr(&self, next: Ipv4Net) -> usize {
        self.is_withdrawn.store(true, Ordering::SeqCst);
        self.pods.lock().values().filter(|number| !next.contains(&address(**number))).count()
    }

    async fn add_pod(&self, uid: &str, hostname: &str, _ports: &[HostPort], first_id: Option<u32>) -> Result<PodNetwork, NetworkError> {
        self.faults.of_network()?;
        if self.is_withdrawn.load(Ordering::SeqCst) && !self.pods.lock().contains_key(uid) {
            return Err(self.cidr.lock().map_or(NetworkError::NoPodCidr, NetworkError::Withdrawn));
        }
        self.added.lock().insert(uid.to_owned());
        let next = || u32::try_from(self.addresses.fetch_add(1, Ordering::SeqCst) + 2).expect("few Pods");
        let address = address(*self.pods.lock().entry(uid.to_owned()).or_insert_with(next));
        let user = first_id.map(|first_id| UserNamespace { path: "/run/ns/user".into(), first_id });
        let sandbox = Sandbox { network: None, ipc: None, uts: None, user, hostname: hostname.to_owned() };
        Ok(PodNetwork { sandbox, ip: address.into() })
    }

    async fn add_host_network_pod(&self, uid: &str) -> Result<PathBuf, NetworkError> {
        Ok(PathBuf::from("/run/ns").join(uid))
    }

    async fn remove_pod(&self, uid: &str) -> Result<(), NetworkError> {
        self.faults.of_network()?;
        self.pods.lock().remove(uid);
        Ok(())
    }

    async fn pods(&self) -> Result<Vec<String>, NetworkError> {
        Ok(self.pods.lock().keys().cloned().collect())
    }

    async fn set_routes(&self, _peers: &[Peer]) -> Result<(), NetworkError> {
        Ok(())
    }

    async fn remove_all(&self) -> Result<(), NetworkError> {
        self.pods.lock().clear();
        Ok(())
    }
}

/// A running agent, on threads of its own, so that it can be killed in the middle of anything.
struct Running {
    cancel: CancellationToken,
    runtime: Option<tokio::runtime::Runtime>,
    task: tokio::task::JoinHandle<Result<(), AgentError>>,
}

impl Running {
    /// The number of its tasks.
    fn tasks(&self) -> usize {
        self.runtime.as_ref().map_or(0, |runtime| runtime.metrics().num_alive_tasks())
    }

    /// `SIGTERM`.
    async fn stop(mut self) {
        self.cancel.cancel();
        (&mut self.task).await.expect("joined").expect("ended well");
    }

    /// `kill -9`: every task of the agent ends where it is.
    async fn kill(mut self) {
        let runtime = self.runtime.take().expect("a runtime");
        tokio::task::spawn_blocking(move || runtime.shutdown_timeout(DEADLINE)).await.expect("killed");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// One API server and one machine, on which agents come and go.
struct Cluster {
    server: Arc<Server>,
    client: kube::Client,
    linux: Arc<World>,
    wasm: Arc<World>,
    images: Arc<FakeImages>,
    network: Arc<FakeNetwork>,
    logind: Arc<FakeLogind>,
    data: tempfile::TempDir,
    config: Config,
}

impl Cluster {
    async fn new(script: Script) -> Self {
        Self::on(script, Arc::new(MemoryStore::new()), AtRest::default()).await
    }

    /// A cluster with this store, in which Secrets are encrypted so.
    async fn on(script: Script, store: Arc<MemoryStore>, encryption: AtRest) -> Self {
        let mut config = api_server::Config::new(PKI.clone(), SocketAddr::from(([10, 0, 0, 1], 6443)));
        // No ServiceAccount controller is here to make what the plugin wants.
        config.disable_admission_plugins = vec!["ServiceAccount".to_owned()];
        config.encryption = encryption;
        let server = Arc::new(Server::start(config, store).await.expect("a server"));
        let client = kube::Client::new(server.router(UserInfo::new("admin", &["system:masters"])), "default");
        let data = tempfile::tempdir().expect("a directory");
        let mut config = Config::new(NODE, IpAddr::from([192, 0, 2, 1]), data.path(), "test");
        config.cgroups = false;
        config.app_armor = AppArmorPaths::below(&data.path().join("app-armor"));
        config.huge_pages_dir = data.path().join("no-huge-pages");
        // What the tests tell does not depend on how full the machine's disk is.
        config.eviction_thresholds = "".parse().expect("no thresholds");
        config.pod_cidr = Some("10.244.0.0/24".parse().expect("a range"));
        config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        config.healthz = None;
        let identity = PKI.serving();
        let serving = Serving {
            certificate_pem: identity.certificate_pem.clone(),
            key_pem: identity.key_pem.clone(),
            client_ca_pem: PKI.ca_pem().to_owned(),
        };
        config.serving = Some(serving.fixed());
        Self {
            server,
            client,
            linux: World::new(script),
            wasm: World::new(Script::default()),
            images: Arc::default(),
            network: Arc::default(),
            logind: Arc::default(),
            data,
            config,
        }
    }

    /// A cluster whose containers run until they are stopped, and its agent.
    async fn running() -> (Self, Running) {
        Self::running_by(Script::default()).await
    }

    /// The same with other containers.
    async fn running_by(script: Script) -> (Self, Running) {
        let cluster = Self::new(script).await;
        let agent = cluster.start();
        cluster.node_ready().await;
        (cluster, agent)
    }

    /// Kills the agent and starts another one, which has taken up its Pods when the Pod `later` is ready.
    async fn replace_agent(&self, agent: Running) -> Running {
        agent.kill().await;
        let agent = self.start();
        self.create("later", one("web:1")).await;
        self.ready("later").await;
        agent
    }

    fn parts(&self) -> Parts {
        Parts {
            runtimes: vec![
                Arc::new(FakeRuntime::new("wasmtime", ContentKind::Wasm, self.wasm.clone())),
                Arc::new(FakeRuntime::new("runc", ContentKind::Linux, self.linux.clone())),
            ],
            images: self.images.clone(),
            network: self.network.clone(),
            shutdowns: self.logind.clone(),
        }
    }

    fn start(&self) -> Running {
        let cancel = CancellationToken::new();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let (client, config, parts, stop) = (self.client.clone(), self.config.clone(), self.parts(), cancel.clone());
        let task = runtime.spawn(async move {
            let informers = Informers::new(client.clone(), Tasks::new(stop.clone()));
            Agent::run(client, &informers, config, parts, stop).await
        });
        Running { cancel, runtime: Some(runtime), task }
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    async fn node_ready(&self) {
        until("the node is ready", async || self.node_condition("Ready").await[0] == "True").await;
    }

    /// Makes a Pod that is bound to the node.
    async fn create(&self, name: &str, spec: Value) -> Pod {
        let mut spec = spec;
        spec["nodeName"] = json!(NODE);
        let pod = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a pod");
        self.pods().create(&PostParams::default(), &pod).await.expect("created")
    }

    /// Waits until the Pod's status is as wanted.
    async fn status(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let latest = Mutex::new(Value::Null);
        let look = async || {
            let pod = self.pods().get(name).await.expect("the pod");
            let status = serde_json::to_value(pod.status).expect("JSON");
            let good = wanted(&status);
            *latest.lock() = status;
            good
        };
        if !poll(look).await {
            panic!("{name} never came to {what}: {:#}", latest.into_inner());
        }
        latest.into_inner()
    }

    async fn ready(&self, name: &str) -> Value {
        self.status(name, "Ready", |status| condition(status, "Ready") == "True").await
    }

    async fn gone(&self, name: &str) {
        until("the pod is gone", async || self.pods().get_opt(name).await.expect("an answer").is_none()).await;
    }

    async fn delete(&self, name: &str, grace: u32) {
        let params = DeleteParams { grace_period_seconds: Some(grace), ..DeleteParams::default() };
        self.pods().delete(name, &params).await.expect("deleted");
    }

    /// `reason: message` of the Pod's events in order.
    async fn event(&self, name: &str, wanted: &str) {
        let latest = Mutex::new(Vec::new());
        let look = async || {
            let texts = self.events(name).await;
            let is_there = texts.iter().any(|text| text.contains(wanted));
            *latest.lock() = texts;
            is_there
        };
        if !poll(look).await {
            panic!("no event {wanted:?} on {name}: {:#?}", latest.into_inner());
        }
    }

    /// The events of an object in the API, by its name.
    async fn api_events(&self, name: &str) -> Vec<Event> {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let list = events.list(&kube::api::ListParams::default()).await.expect("events");
        list.items.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(name)).collect()
    }

    /// The events of a Pod: reason and message.
    async fn events(&self, name: &str) -> Vec<String> {
        self.api_events(name)
            .await
            .into_iter()
            .map(|event| format!("{}: {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default()))
            .collect()
    }

    async fn patch(&self, name: &str, patch: Value) {
        self.pods().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
    }
}

/// The status of a condition.
fn condition<'a>(status: &'a Value, name: &str) -> &'a str {
    let found = status["conditions"].as_array().and_then(|list| list.iter().find(|condition| condition["type"] == name));
    found.and_then(|condition| condition["status"].as_str()).unwrap_or_default()
}

/// Whether a condition becomes true before the deadline. It is checked every few milliseconds: the API server is in this
/// process and there is no notification.
async fn poll(look: impl AsyncFn() -> bool) -> bool {
    let until = tokio::time::Instant::now() + DEADLINE;
    while tokio::time::Instant::now() < until {
        if look().await {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    false
}

/// How often a container was started.
fn starts(world: &World) -> usize {
    world.calls().iter().filter(|call| **call == Operation::Start).count()
}

async fn until(what: &str, look: impl AsyncFn() -> bool) {
    assert!(poll(look).await, "not in time: {what}");
}

fn one(image: &str) -> Value {
    json!({"containers": [{"name": "c", "image": image}]})
}
