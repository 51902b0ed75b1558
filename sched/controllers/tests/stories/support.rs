//! A cluster in one process, and waiting for its changes.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use api_auth::{Pki, PkiConfig};
use api_client::fence::Fence;
use api_client::informer::Informers;
use api_client::lease;
use api_model::request::UserInfo;
use api_store::MemoryStore;
use api_tasks::Tasks;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use sched_controllers::{Account, Config, SigningError, SigningRequest};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Longer than any change takes that happens at all.
const DEADLINE: Duration = Duration::from_secs(30);

pub struct Cluster {
    pub client: Client,
    pub server: Arc<api_server::Server>,
    cancel: CancellationToken,
    controllers: tokio::task::JoinHandle<Result<(), sched_controllers::Error>>,
    _pki: tempfile::TempDir,
}

impl Cluster {
    /// A cluster with changed settings. The default settings here have the short times that stories need.
    pub async fn start(adjust: impl FnOnce(&mut Config)) -> Self {
        // An earlier story of this process may have set the subscriber already.
        let _ = tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).with_test_writer().try_init();
        let directory = tempfile::tempdir().expect("a directory");
        let pki = Arc::new(Pki::open(directory.path(), &PkiConfig::for_cluster("cluster.local")).expect("keys"));
        let address = "127.0.0.1:6443".parse().expect("an address");
        let mut server_config = api_server::Config::new(Arc::clone(&pki), address);
        server_config.scaled_objects = true;
        let server = api_server::Server::start(server_config, Arc::new(MemoryStore::new())).await.expect("a server");
        let server = Arc::new(server);
        let client = Client::new(server.client(UserInfo::new("system:admin", &["system:masters"])), "default");
        let manager = UserInfo::new("system:kube-controller-manager", &["system:authenticated"]);
        let manager = Client::new(server.client(manager), "default");
        let accounts = Arc::clone(&server);
        let account = move |account: Account, _: Option<&Fence>| {
            let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
            let user = match account {
                Account::Manager => UserInfo::new("system:kube-controller-manager", &["system:authenticated"]),
                Account::Named(name) => UserInfo::new(format!("system:serviceaccount:kube-system:{name}"), &groups),
            };
            Client::new(accounts.client(user), "default")
        };
        let authority = Arc::clone(&pki);
        let sign = move |request: &SigningRequest| {
            authority
                .sign_csr(&request.request_pem, &request.usages, request.duration)
                .map_err(|error| SigningError::Failed(Box::new(error)))
        };
        let mut config = Config {
            accounts: Some(Arc::new(account)),
            root_ca_pem: Some(pki.ca_pem().to_owned()),
            signer: Some(Arc::new(sign)),
            ..Config::default()
        };
        adjust(&mut config);
        let cancel = CancellationToken::new();
        let informers = Informers::new(manager, Tasks::new(cancel.clone()));
        let controllers = tokio::spawn(sched_controllers::run(informers, config, cancel.clone()));
        let cluster = Self { client, server, cancel, controllers, _pki: directory };
        until("the default account", cluster.api::<ServiceAccount>(), |all| all.contains_key("default")).await;
        cluster
    }

    /// Stops the controllers, which must end in time.
    pub async fn stop(self) {
        self.cancel.cancel();
        tokio::time::timeout(DEADLINE, self.controllers).await.expect("controllers end").expect("no panic").expect("no error");
        self.server.shutdown().await;
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    pub fn all<K: kube::Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// A Node with heartbeats until its token is cancelled. Its kubelet runs the Pods bound to it.
    pub async fn node(&self, name: &str) -> CancellationToken {
        let nodes: Api<Node> = self.all();
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::now());
        let conditions: Vec<Value> = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"]
            .iter()
            .map(|kind| json!({"type": kind, "status": if *kind == "Ready" { "True" } else { "False" }, "reason": "Fake", "lastHeartbeatTime": time, "lastTransitionTime": time}))
            .collect();
        let status = json!({"conditions": conditions, "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]});
        let node = from(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
        nodes.create(&PostParams::default(), &node).await.expect("a Node");
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await.expect("its status");
        let alive = self.cancel.child_token();
        let (client, node, token) = (self.client.clone(), name.to_owned(), alive.clone());
        tokio::spawn(async move { lease::heartbeat(client, &node, Duration::from_secs(4), token).await });
        let (client, node, token) = (self.client.clone(), name.to_owned(), alive.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = token.cancelled() => {}
                () = kubelet(client, node) => {}
            }
        });
        alive
    }

    /// Binds Pods to ready Nodes in turn.
    pub fn schedule(&self) {
        let (client, token) = (self.client.clone(), self.cancel.child_token());
        tokio::spawn(async move {
            tokio::select! {
                () = token.cancelled() => {}
                () = scheduler(client) => {}
            }
        });
    }
}

async fn scheduler(client: Client) {
    let pods: Api<Pod> = Api::all(client.clone());
    let nodes: Api<Node> = Api::all(client.clone());
    let mut events = std::pin::pin!(watcher(pods, watcher::Config::default().fields("spec.nodeName=")).default_backoff().touched_objects());
    let mut bound = 0_usize;
    while let Some(event) = events.next().await {
        let Ok(pod) = event else { continue };
        if pod.metadata.deletion_timestamp.is_some() || pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
            continue;
        }
        let ready = |node: &Node| node.spec.as_ref().is_none_or(|spec| spec.taints.iter().flatten().next().is_none());
        let candidates: Vec<Node> = loop {
            let candidates: Vec<Node> = nodes.list(&Default::default()).await.expect("Nodes").into_iter().filter(ready).collect();
            if !candidates.is_empty() {
                break candidates;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let node = candidates[bound % candidates.len()].name_any();
        let binding =
            json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name_any()}, "target": {"kind": "Node", "name": node}});
        let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        match api.create_subresource::<_, Value>("binding", &pod.name_any(), &PostParams::default(), &binding).await {
            Ok(_) => bound += 1,
            // The Pod was processed a second time, before the watch showed its binding.
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => tracing::warn!(%error, "stand-in could not bind"),
        }
    }
}

async fn kubelet(client: Client, node: String) {
    let pods: Api<Pod> = Api::all(client.clone());
    let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    let mut events = std::pin::pin!(watcher(pods, config).default_backoff().touched_objects());
    let mut address = 1_u8;
    while let Some(event) = events.next().await {
        let Ok(pod) = event else { continue };
        let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        if pod.metadata.deletion_timestamp.is_some() {
            log_failure("deleting", api.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await);
        } else if pod.status.as_ref().and_then(|status| status.pod_ip.as_ref()).is_none() {
            address = address.wrapping_add(1);
            let broken = pod.spec.iter().flat_map(|spec| &spec.containers).any(|container| container.image.as_deref() == Some("broken"));
            let ip = format!("10.244.{}.{address}", node.bytes().map(u32::from).sum::<u32>() % 250);
            let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let ready = json!({"type": "Ready", "status": if broken { "False" } else { "True" }, "lastTransitionTime": now});
            let status =
                json!({"status": {"phase": "Running", "startTime": now, "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [ready]}});
            log_failure("running", api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(status)).await);
        }
    }
}

/// A stand-in may lose races with the controllers. The log has its failures.
fn log_failure<T>(what: &str, result: kube::Result<T>) {
    if let Err(error) = result {
        tracing::warn!(what, %error, "stand-in failed");
    }
}

/// A typed object.
pub fn from<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

/// Follows a collection until `done` returns true for its objects, by name; returns the objects.
pub async fn until<K>(what: &str, api: Api<K>, done: impl Fn(&BTreeMap<String, K>) -> bool) -> BTreeMap<String, K>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    let mut objects = BTreeMap::new();
    let mut listed = false;
    let follow = async {
        while let Some(event) = events.next().await {
            match event.expect("a watch") {
                watcher::Event::Init => listed = false,
                watcher::Event::InitDone => listed = true,
                watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                    objects.insert(key(&object), object);
                }
                watcher::Event::Delete(object) => {
                    objects.remove(&key(&object));
                }
            }
            if listed && done(&objects) {
                return;
            }
        }
    };
    if tokio::time::timeout(DEADLINE, follow).await.is_err() {
        panic!("{what}: never; at the end {objects:#?}");
    }
    objects
}

fn key<K: kube::Resource<DynamicType = ()>>(object: &K) -> String {
    object.meta().name.clone().unwrap_or_default()
}
