//! A cluster in one process, and waiting for its Pods.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use api_auth::{Pki, PkiConfig};
use api_client::fence::Clients;
use api_client::informer::Informers;
use api_model::request::UserInfo;
use api_store::MemoryStore;
use api_tasks::{TaskFailure, Tasks};
use k8s_openapi::api::core::v1::{Event, Node, Pod, ServiceAccount};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt};
use sched_scheduler::{Config, KubeSchedulerConfiguration};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Longer than anything takes that happens at all.
const DEADLINE: Duration = Duration::from_secs(30);

pub struct Cluster {
    pub client: Client,
    server: Arc<api_server::Server>,
    cancel: CancellationToken,
    scheduler: tokio::task::JoinHandle<Result<(), TaskFailure>>,
    _pki: tempfile::TempDir,
}

impl Cluster {
    /// A cluster of these nodes of four cores, whose scheduler has these extenders.
    pub async fn start(nodes: &[&str], extenders: Value) -> Self {
        Self::configured(nodes, json!({"extenders": extenders})).await
    }

    /// A cluster of these nodes of four cores, whose scheduler has this configuration.
    pub async fn configured(nodes: &[&str], configuration: Value) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let pki = Arc::new(Pki::open(directory.path(), &PkiConfig::for_cluster("cluster.local")).expect("keys"));
        let address = "127.0.0.1:6443".parse().expect("an address");
        let server = api_server::Server::start(api_server::Config::new(Arc::clone(&pki), address), Arc::new(MemoryStore::new()))
            .await
            .expect("a server");
        let server = Arc::new(server);
        let client_of = |user: UserInfo| Client::new(server.client(user), "default");
        let client = client_of(UserInfo::new("system:admin", &["system:masters"]));
        let account: ServiceAccount = from(json!({"metadata": {"name": "default"}}));
        Api::default_namespaced(client.clone()).create(&PostParams::default(), &account).await.expect("an account");
        let cancel = CancellationToken::new();
        let scheduler = scheduler(&server, configuration, &cancel);
        let cluster = Self { client, server, cancel, scheduler, _pki: directory };
        for name in nodes {
            cluster.add_node(name).await;
        }
        cluster
    }

    /// Stops the scheduler, which must end in time and without a failure.
    pub async fn stop(self) {
        self.cancel.cancel();
        tokio::time::timeout(DEADLINE, self.scheduler).await.expect("the scheduler ends").expect("no panic").expect("no failure");
        self.server.shutdown().await;
    }

    /// The cluster after its scheduler was killed, with another scheduler.
    pub async fn with_another_scheduler(self, extenders: Value) -> Self {
        self.scheduler.abort();
        self.cancel.cancel();
        let cancel = CancellationToken::new();
        let scheduler = scheduler(&self.server, json!({"extenders": extenders}), &cancel);
        Self { cancel, scheduler, ..self }
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::default_namespaced(self.client.clone())
    }

    /// Adds a node of four cores.
    pub async fn add_node(&self, name: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = from(json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}));
        nodes.create(&PostParams::default(), &node).await.expect("a Node");
        let images = json!([{"names": ["registry.example/large:1"], "sizeBytes": 1}]);
        let status = json!({"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "images": images}});
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.expect("its status");
        // A new Node has the taint of one that is not ready.
        let spec = Patch::Merge(json!({"spec": {"taints": null}}));
        nodes.patch(name, &PatchParams::default(), &spec).await.expect("its spec");
    }

    /// Creates a Pod.
    pub async fn pod(&self, name: &str, spec: Value) {
        let mut whole = json!({"metadata": {"name": name}, "spec": spec});
        if whole["spec"]["containers"].is_null() {
            whole["spec"]["containers"] = json!([{"name": "c", "image": "none", "env": [{"name": "A", "value": "b"}]}]);
        }
        self.api::<Pod>().create(&PostParams::default(), &from(whole)).await.expect("a Pod");
    }

    /// The node that the Pod gets.
    pub async fn node_of(&self, name: &str) -> String {
        let pod = self.until(name, |pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())).await;
        pod.spec.and_then(|spec| spec.node_name).unwrap_or_default()
    }

    /// Waits until the condition `PodScheduled` of the Pod has this reason and a message that contains the text.
    pub async fn until_unscheduled(&self, name: &str, reason: &str, text: &str) -> String {
        let message = |pod: &Pod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
            let scheduled = conditions.into_iter().flatten().find(|one| one.type_ == "PodScheduled" && one.status == "False");
            scheduled.filter(|one| one.reason.as_deref() == Some(reason)).and_then(|one| one.message.clone())
        };
        let pod = self.until(name, |pod| message(pod).is_some_and(|message| message.contains(text))).await;
        message(&pod).unwrap_or_default()
    }

    /// Waits until the Pod is as wanted.
    pub async fn until(&self, name: &str, is_wanted: impl Fn(&Pod) -> bool) -> Pod {
        let condition = |pod: Option<&Pod>| pod.is_some_and(&is_wanted);
        match tokio::time::timeout(DEADLINE, await_condition(self.api(), name, condition)).await {
            Ok(pod) => pod.expect("a watch").expect("a Pod"),
            Err(_) => panic!("{name}: {:#?}", self.api::<Pod>().get_opt(name).await),
        }
    }

    /// The messages of the Pod's events with this reason.
    pub async fn events(&self, name: &str, reason: &str) -> Vec<String> {
        let fields = format!("involvedObject.name={name},reason={reason}");
        let events = self.api::<Event>().list(&ListParams::default().fields(&fields)).await.expect("events");
        events.into_iter().filter_map(|event| event.message).collect()
    }
}

/// Starts a scheduler.
fn scheduler(
    server: &api_server::Server,
    mut configuration: Value,
    cancel: &CancellationToken,
) -> tokio::task::JoinHandle<Result<(), TaskFailure>> {
    configuration["apiVersion"] = json!("kubescheduler.config.k8s.io/v1");
    configuration["kind"] = json!("KubeSchedulerConfiguration");
    let configuration = KubeSchedulerConfiguration::parse(&configuration.to_string()).expect("a valid configuration");
    let client_of = |name: &str| Client::new(server.client(UserInfo::new(name, &["system:authenticated"])), "default");
    let informers = Informers::new(client_of("system:kube-controller-manager"), Tasks::new(cancel.clone()));
    let (config, user) = (Config { configuration, ..Config::default() }, client_of("system:kube-scheduler"));
    tokio::spawn(sched_scheduler::run(Clients::new(move |_| user.clone()), informers, config, cancel.clone()))
}

pub fn from<K: DeserializeOwned + Debug>(value: Value) -> K {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{value}: {error}"))
}

pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}

/// The names of a Pod's nodes in a request.
pub fn offered(request: &Value) -> Vec<String> {
    let mut names: Vec<String> = match &request["NodeNames"] {
        Value::Array(names) => names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect(),
        _ => {
            let items = request["Nodes"]["items"].as_array().expect("nodes").clone();
            items.into_iter().map(|node| from::<Node>(node).name_any()).collect()
        }
    };
    names.sort();
    names
}
